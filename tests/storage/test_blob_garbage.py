"""Blob files of earlier versions: rewritten when enough of them is garbage, and not otherwise.

RocksDB by itself moves the oldest quarter of all rows in every compaction, garbage or not. Of a
broker that took 100 MB/s this was half of the processor time, and grew with what it had stored.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar_storage import blob_garbage, rocks_background, rocks_options, value_log
from magnetar_storage.blob_garbage import is_to_collect
from magnetar_storage.rocks import RocksStore
from magnetar_storage.store import WriteBatch

GIB = 1 << 30
ROW = bytes(range(256)) * 64
ROWS_A_SYNC = 16


@pytest.mark.parametrize(
    ("stored", "garbage", "collecting", "wanted"),
    [
        (GIB, 0, False, False),
        (GIB, GIB // 2, False, False),
        (GIB, GIB // 2 + 1, False, True),
        (GIB, GIB // 4 + 1, True, True),
        (GIB, GIB // 4, True, False),
        (blob_garbage.STORED_BYTES_MIN - 1, blob_garbage.STORED_BYTES_MIN - 1, True, False),
        (0, 0, False, False),
    ],
)
def test_it_begins_above_one_share_and_ends_below_another(
    stored: int, garbage: int, collecting: bool, wanted: bool
) -> None:
    assert is_to_collect(stored, garbage, collecting=collecting) is wanted


@pytest.fixture
def store_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store with small files, so that there are many; values are where they once were."""
    monkeypatch.setattr(value_log, "VALUE_BYTES_MIN", 1 << 40)
    monkeypatch.setattr(rocks_options, "PAYLOAD_MEMTABLE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(rocks_options, "BLOB_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(blob_garbage, "STORED_BYTES_MIN", 8 << 20)
    monkeypatch.setattr(rocks_background, "LOOK_INTERVAL_SECONDS", 0.0)
    return tmp_path / "data"


def key_of(number: int) -> bytes:
    """Of two partitions in turn: files that overlap are not moved as they are."""
    return b"%d/%08d" % (number % 2, number)


async def fill(store: RocksStore, first: int, end: int) -> None:
    for start in range(first, end, ROWS_A_SYNC):
        batch = WriteBatch()
        for number in range(start, min(start + ROWS_A_SYNC, end)):
            batch.put("payloads", key_of(number), ROW)
        await store.write(batch)
        await store.sync()


async def remove_odd(store: RocksStore, end: int) -> None:
    """Three of four."""
    batch = WriteBatch()
    for number in range(end):
        if number % 4:
            batch.delete("payloads", key_of(number))
    await store.write(batch)
    await store.sync()


def blob_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.blob"))


def test_without_garbage_nothing_is_written_twice(store_directory: Path) -> None:
    async def scenario() -> None:
        store = RocksStore.open(store_directory, ("payloads",), payload_families=("payloads",))
        await fill(store, 0, 4_000)
        await store.close()

    asyncio.run(scenario())
    log = (store_directory / "LOG").read_text()
    assert "compaction_finished" in log
    assert "num_blob_output_files" not in log
    assert blob_bytes(store_directory) < 1.1 * 4_000 * len(ROW)


def test_files_with_a_few_rows_that_stay_are_freed(store_directory: Path) -> None:
    async def scenario() -> None:
        store = RocksStore.open(store_directory, ("payloads",), payload_families=("payloads",))
        await fill(store, 0, 4_000)
        await remove_odd(store, 4_000)
        await fill(store, 4_000, 6_000)
        for number in range(6_000):
            wanted = None if number < 4_000 and number % 4 else ROW
            assert await store.get("payloads", key_of(number)) == wanted
        await store.close()

    asyncio.run(scenario())
    # A thousand of the first are left, in files that were all but full of others.
    stored = 3_000 * len(ROW)
    assert blob_bytes(store_directory) < 1.6 * stored


def test_the_same_store_collects_after_a_restart(store_directory: Path) -> None:
    async def scenario() -> None:
        store = RocksStore.open(store_directory, ("payloads",), payload_families=("payloads",))
        await fill(store, 0, 4_000)
        await remove_odd(store, 4_000)
        await store.close()
        store = RocksStore.open(store_directory, ("payloads",), payload_families=("payloads",))
        await fill(store, 4_000, 6_000)
        await store.close()

    asyncio.run(scenario())
    assert blob_bytes(store_directory) < 1.6 * 3_000 * len(ROW)
