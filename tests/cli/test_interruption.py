"""Work that something else may interrupt."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import turns

from magnetar_cli.servers.interruption import Interrupted, unless, unless_stopped


class Work:
    """Waits for ever, and takes a moment to end."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = False

    async def run(self) -> int:
        self.began.set()
        try:
            return int(await asyncio.Event().wait())
        finally:
            await turns(1)
            self.ended = True


async def done(value: int) -> int:
    return value


async def failed() -> int:
    raise ValueError("the work failed")


def test_work_that_nothing_interrupts_ends_as_it_ends() -> None:
    async def run() -> None:
        stop = asyncio.Event()
        assert await unless_stopped(done(3), stop) == 3
        with pytest.raises(ValueError, match="the work failed"):
            await unless_stopped(failed(), stop)
        happening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert await unless(done(4), happening) == 4
        assert not happening.done()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_interrupted_work_has_ended() -> None:
    async def run() -> None:
        stop, work = asyncio.Event(), Work()
        waiting = asyncio.create_task(unless_stopped(work.run(), stop))
        await work.began.wait()
        stop.set()
        assert await waiting is None
        assert work.ended
        again = Work()
        happening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        also_waiting = asyncio.create_task(unless(again.run(), happening))
        await again.began.wait()
        happening.set_result(1)
        with pytest.raises(Interrupted):
            await also_waiting
        assert again.ended

    asyncio.run(run())


def test_work_ends_with_whoever_waits_for_it() -> None:
    """Otherwise it would go on opening a store for a process that has given up."""

    async def run() -> None:
        work = Work()
        waiting = asyncio.create_task(unless_stopped(work.run(), asyncio.Event()))
        await work.began.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert work.ended

    asyncio.run(run())
