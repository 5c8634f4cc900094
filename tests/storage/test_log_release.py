"""Write-ahead logs: let go of together, before RocksDB does it family by family.

RocksDB flushes only those families that hold the oldest log. In a run of ten million small
transactions the logs of both servers crept from a third of their limit to all of it within an
hour and a half, because families that fill at different rates drifted apart.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from magnetar_storage.data_dir.store_files import logs_bytes
from magnetar_storage.rocksdb import background as rocks_background
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import WriteBatch

FAMILIES = ("cursors", "payloads")
ROW = bytes(range(256)) * 64
ROWS_A_SYNC = 16
HELD_MAX = 2 << 20


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store that lets go of its logs early, and looks at every sync."""
    monkeypatch.setattr(rocks_options, "PAYLOAD_MEMTABLE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(rocks_background, "LOGS_BYTES_HELD_MAX", HELD_MAX)
    monkeypatch.setattr(rocks_background, "LOOK_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(rocks_background, "RELEASE_INTERVAL_SECONDS", 0.0)
    return tmp_path / "data"


def open_store(directory: Path) -> RocksStore:
    return RocksStore.open(directory, FAMILIES, payload_families=("payloads",))


def tables(directory: Path) -> list[Path]:
    return list(directory.glob("*.sst"))


async def write_cursor(store: RocksStore) -> None:
    """A row that pins the log it is in: its family's memtable never fills."""
    batch = WriteBatch()
    batch.put("cursors", b"reader", b"12")
    await store.write(batch)
    await store.sync()


async def fill(store: RocksStore, count: int) -> None:
    for start in range(0, count, ROWS_A_SYNC):
        batch = WriteBatch()
        for number in range(start, start + ROWS_A_SYNC):
            batch.put("payloads", b"%08d" % number, ROW)
        await store.write(batch)
        await store.sync()


def test_a_family_at_rest_does_not_hold_the_logs(directory: Path) -> None:
    async def scenario() -> None:
        store = open_store(directory)
        await write_cursor(store)
        await fill(store, 1_024)

        async def is_released() -> bool:
            await store.sync()
            return logs_bytes(str(directory)) < HELD_MAX

        await until(is_released)
        # What a process leaves that is killed now.
        shutil.copytree(directory, directory.with_name("killed"))
        await store.close()
        store = open_store(directory.with_name("killed"))
        assert await store.get("cursors", b"reader") == b"12"
        for number in range(1_024):
            assert await store.get("payloads", b"%08d" % number) == ROW
        await store.close()

    asyncio.run(scenario())


def test_nothing_is_flushed_before(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_background, "LOGS_BYTES_HELD_MAX", 64 << 20)

    async def scenario() -> None:
        store = open_store(directory)
        await write_cursor(store)
        await fill(store, 32)
        assert not tables(directory)
        await store.close()

    asyncio.run(scenario())


def test_they_are_let_go_of_once_in_a_while(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flushes take a moment to end: until then the logs are as large as before."""
    monkeypatch.setattr(rocks_background, "LOGS_BYTES_HELD_MAX", 0)
    monkeypatch.setattr(rocks_background, "RELEASE_INTERVAL_SECONDS", 3_600.0)

    async def scenario() -> None:
        store = open_store(directory)
        await write_cursor(store)
        await until(lambda: tables(directory))
        for _ in range(3):
            await write_cursor(store)
        assert len(tables(directory)) == 1
        await store.close()

    asyncio.run(scenario())


class DamagedRows:
    """A family that cannot be flushed."""

    def property_int_value(self, name: str) -> int:
        return 0

    def path(self) -> str:
        return ""

    def flush(self, wait: bool) -> None:
        raise RuntimeError("IO error: No space left on device")


def test_a_flush_that_fails_does_not_fail_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_background, "LOGS_BYTES_HELD_MAX", 0)
    monkeypatch.setattr(rocks_background, "logs_bytes", lambda directory: 1)
    rows: Any = DamagedRows()
    background = rocks_background.Background(rows, [rows])
    background.look(0.0)
