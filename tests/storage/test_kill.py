"""Invariant 2 with a real process: nothing acknowledged as durable is lost by kill -9."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END

CHILD = """
import asyncio, sys
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.rocksdb.engine import RocksStore

async def main(path):
    store = RocksStore.open(path, ("numbers", "payloads"), payload_families=("payloads",))
    commits = GroupCommit(store, on_failure=lambda error: sys.exit(1))
    await commits.start()
    number = 0
    while True:
        for _ in range(3):
            key = number.to_bytes(8, "big")
            commits.batch.put("numbers", key, b"v" * 100)
            commits.batch.put("payloads", key, b"p" * 5000)
            commits.when_durable(
                commits.position(), lambda number=number: print(number, flush=True)
            )
            number += 1
        await commits.durable()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.chaos
def test_acknowledged_rows_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "data"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(60)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()
    assert acknowledged == list(range(len(acknowledged)))

    async def reopened() -> tuple[list[int], list[int]]:
        store = RocksStore.open(path, ("numbers", "payloads"), payload_families=("payloads",))
        found = []
        for family in ("numbers", "payloads"):
            rows = await store.scan(family, b"", KEY_END, rows_max=1_000_000)
            found.append([int.from_bytes(key, "big") for key, _ in rows])
        await store.close()
        return found[0], found[1]

    numbers, payloads = asyncio.run(reopened())
    assert numbers[: len(acknowledged)] == acknowledged
    assert numbers == payloads == list(range(len(numbers))), "whole batches, without a gap"
