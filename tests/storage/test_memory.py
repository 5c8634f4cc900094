"""The in-memory engine's faults: what a simulation relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import KEY_END, RowsUnreadable, StoreFailed, WriteBatch

FAMILIES = ("rows",)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def one_row(number: int) -> WriteBatch:
    batch = WriteBatch()
    batch.put("rows", b"%03d" % number, b"v")
    return batch


async def write_and_sync(store: MemoryStore) -> None:
    await store.write(one_row(1))
    await store.sync()


async def keys_of(disk: MemoryDisk) -> list[int]:
    store = MemoryStore(disk, FAMILIES)
    rows = await store.scan("rows", b"", KEY_END, rows_max=1000)
    await store.close()
    return [int(key) for key, _ in rows]


def test_a_crash_loses_only_an_unsynced_tail() -> None:
    """Invariant 2: what was synced is never lost, what was not goes from the end, whole batches."""

    async def scenario() -> None:
        lost_counts = set()
        for seed in range(40):
            disk = MemoryDisk()
            store = MemoryStore(disk, FAMILIES)
            for number in range(5):
                await store.write(one_row(number))
            await store.sync()
            for number in range(5, 9):
                await store.write(one_row(number))
            assert disk.unsynced_batch_count == 4
            lost = disk.crash(Random(seed))
            lost_counts.add(lost)
            with pytest.raises(StoreFailed):
                await store.get("rows", b"000")
            assert await keys_of(disk) == list(range(9 - lost))
        assert lost_counts == {0, 1, 2, 3, 4}

    run(scenario())


def test_what_is_durable_is_what_the_worst_crash_leaves() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = MemoryStore(disk, FAMILIES)
        await write_and_sync(store)
        change = one_row(2)
        change.put("rows", b"001", b"later")
        await store.write(change)
        change = WriteBatch()
        change.delete_range("rows", b"", KEY_END)
        await store.write(change)
        assert disk.durable("rows", b"001") == b"v"
        assert disk.durable("rows", b"002") is None
        assert disk.durable_keys("rows") == [b"001"]
        await store.sync()
        assert disk.durable("rows", b"001") is None
        assert disk.durable_keys("rows") == []

    run(scenario())


def test_a_kill_loses_nothing() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = MemoryStore(disk, FAMILIES)
        await store.write(one_row(1))
        assert disk.crash() == 0
        assert await keys_of(disk) == [1]
        assert disk.crash(Random(1)) == 0, "what came through a crash is on the disk"
        assert await keys_of(disk) == [1]

    run(scenario())


def test_a_lost_batch_is_taken_back_exactly() -> None:
    class Everything(Random):
        def randint(self, low: int, high: int) -> int:
            return high

    async def scenario() -> None:
        disk = MemoryDisk()
        store = MemoryStore(disk, FAMILIES)
        for number in range(4):
            await store.write(one_row(number))
        await store.sync()
        batch = WriteBatch()
        batch.put("rows", b"000", b"changed")
        batch.delete("rows", b"001")
        batch.delete("rows", b"777")
        batch.delete_range("rows", b"000", b"003")
        batch.put("rows", b"000", b"again")
        batch.put("rows", b"900", b"new")
        await store.write(batch)
        snapshot = await store.snapshot()
        assert await snapshot.get("rows", b"000") == b"again"
        assert disk.crash(Everything()) == 1
        assert await keys_of(disk) == [0, 1, 2, 3]
        reopened = MemoryStore(disk, FAMILIES)
        assert await reopened.get("rows", b"000") == b"v"

    run(scenario())


def test_a_failed_write_or_sync_fails_everything_after_it() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        for fail in (disk.fail_next_write, disk.fail_next_sync):
            store = MemoryStore(disk, FAMILIES)
            fail()
            with pytest.raises(StoreFailed):
                await write_and_sync(store)
            with pytest.raises(StoreFailed):
                await store.write(one_row(2))
            with pytest.raises(StoreFailed):
                await store.get("rows", b"001")
            disk.crash()
        assert await keys_of(disk) == [1], "the failed write left nothing, the failed sync its rows"

    run(scenario())


def test_a_full_disk_fails_the_write_that_does_not_fit() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        disk.free_bytes = 4
        store = MemoryStore(disk, FAMILIES)
        await store.write(one_row(1))
        assert store.free_bytes() == 4
        disk.free_bytes = 3
        with pytest.raises(StoreFailed):
            await store.write(one_row(2))
        disk.crash()
        assert await keys_of(disk) == [1]

    run(scenario())


def test_probabilities_need_an_injected_random() -> None:
    async def scenario() -> None:
        disk = MemoryDisk(random=Random(7))
        disk.sync_failure_probability = 1.0
        store = MemoryStore(disk, FAMILIES)
        await store.write(one_row(1))
        with pytest.raises(StoreFailed):
            await store.sync()
        disk = MemoryDisk()
        disk.write_failure_probability = 0.5
        with pytest.raises(AssertionError):
            await MemoryStore(disk, FAMILIES).write(one_row(1))

    run(scenario())


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    async def scenario() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def stall(_: float) -> None:
            begun.set()
            await release.wait()

        disk = MemoryDisk(sleep=stall)
        disk.sync_seconds = 1.0
        store = MemoryStore(disk, FAMILIES)
        await store.write(one_row(1))
        syncing = asyncio.create_task(store.sync())
        await begun.wait()
        await store.write(one_row(2))
        release.set()
        await syncing
        assert disk.unsynced_batch_count == 1

    run(scenario())


def test_a_crash_ends_what_was_stalled() -> None:
    async def scenario() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def stall(_: float) -> None:
            begun.set()
            await release.wait()

        disk = MemoryDisk(sleep=stall)
        disk.write_seconds = 1.0
        store = MemoryStore(disk, FAMILIES)
        writing = asyncio.create_task(store.write(one_row(1)))
        await begun.wait()
        disk.crash()
        release.set()
        with pytest.raises(StoreFailed):
            await writing
        assert await keys_of(disk) == []

    run(scenario())


def test_a_row_that_cannot_be_read_stops_nothing_else() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = MemoryStore(disk, FAMILIES)
        for number in range(4):
            await store.write(one_row(number))
        disk.unreadable.add(("rows", b"002"))
        with pytest.raises(RowsUnreadable):
            await store.get("rows", b"002")
        with pytest.raises(RowsUnreadable) as raised:
            await store.scan("rows", b"", KEY_END, rows_max=10)
        assert [key for key, _ in raised.value.rows] == [b"000", b"001"]
        with pytest.raises(RowsUnreadable):
            await store.prefixes("rows", b"001", KEY_END, length=3, count_max=10)
        assert await store.scan("rows", b"", KEY_END, rows_max=2) == list(raised.value.rows)
        assert [key for key, _ in await store.scan("rows", b"003", KEY_END, rows_max=9)] == [b"003"]
        await store.write(one_row(9))
        await store.sync()

    run(scenario())
