"""A process of a service: a pool of dual writers, in threads or in tasks, that may kill itself.

    python -m tests.system.pool_worker ADDRESS KIND DATABASE TOPIC FIRST COUNT [STEP]

Writes COUNT numbers from FIRST on, up to 4 units at once, and prints those whose units have failed.
With a STEP the process dies right before that step of its third unit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.system.pool_stores import BLOCKING, insert, open_async_store, open_store

import magnetar
from magnetar import blocking
from magnetar.dual_write import AsyncDualWriterPool, DualWriterPool, Step

POOL = "numbers"
UNITS_AT_ONCE = 4


class Death:
    """Kills the process at a step."""

    def __init__(self, step: str) -> None:
        self._step = Step[step] if step else None
        self._seen = 0

    def on_step(self, step: Step) -> None:
        if step is self._step:
            self._seen += 1
            if self._seen == 3:
                os.kill(os.getpid(), signal.SIGKILL)


def in_threads(
    address: str, kind: str, database: str, topic: str, numbers: range, death: Death
) -> None:
    def write(number: int) -> None:
        try:
            with pool.unit() as unit:
                unit.send(topic, b"%d" % number)
                insert(unit.store, kind, number)
        except Exception as error:
            print(number, repr(error), flush=True)

    with (
        blocking.connect(address) as client,
        DualWriterPool(
            client,
            POOL,
            partial(open_store, kind, database),
            size=UNITS_AT_ONCE,
            on_step=death.on_step,
        ) as pool,
        ThreadPoolExecutor(UNITS_AT_ONCE) as threads,
    ):
        list(threads.map(write, numbers))


async def in_tasks(
    address: str, kind: str, database: str, topic: str, numbers: range, death: Death
) -> None:
    async def write(number: int) -> None:
        try:
            async with pool.unit() as unit:
                await unit.send(topic, b"%d" % number)
                await insert(unit.store, kind, number)
        except Exception as error:
            print(number, repr(error), flush=True)

    async with await magnetar.connect(address) as client:
        pool: AsyncDualWriterPool[Any] = AsyncDualWriterPool(
            client,
            POOL,
            partial(open_async_store, kind, database),
            size=UNITS_AT_ONCE,
            on_step=death.on_step,
        )
        async with pool:
            await asyncio.gather(*map(write, numbers))


def main(
    address: str, kind: str, database: str, topic: str, first: str, count: str, step: str = ""
) -> None:
    numbers = range(int(first), int(first) + int(count))
    death = Death(step)
    if kind in BLOCKING:
        in_threads(address, kind, database, topic, numbers, death)
    else:
        asyncio.run(in_tasks(address, kind, database, topic, numbers, death))


if __name__ == "__main__":
    main(*sys.argv[1:])
