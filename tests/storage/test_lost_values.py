"""Values that are missing at a start: removed as garbage, lost with the machine, or not readable.

Source: docs/design/0019-values.md, Loss of power.
"""

from __future__ import annotations

import asyncio
import mmap
from pathlib import Path

import pytest
from tests.storage.killing import kill
from tests.storage.value_stores import (
    add,
    files,
    key_of,
    numbers_of,
    opened,
    rest,
    small_files,
)

from magnetar_storage import synced_mark, unsynced_note
from magnetar_storage.rocks import RocksStore
from magnetar_storage.store import WriteBatch


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_files(monkeypatch)
    return tmp_path / "data"


def boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have gone down since."""
    monkeypatch.setattr(unsynced_note, "_boot_id", lambda: "another")


async def write_row(store: RocksStore, value: bytes) -> None:
    batch = WriteBatch()
    batch.put("small", b"row", value)
    await store.write(batch)


async def delete_whole_file(store: RocksStore) -> None:
    """The first file gets full, the next one begins, and no row points to the first one."""
    await store.write(add(WriteBatch(), range(16)))
    batch = WriteBatch()
    for number in range(16):
        batch.delete("payloads", key_of(number))
    await store.write(add(batch, [16]))


@pytest.mark.parametrize("late_syncs", [False, True])
def test_a_loss_of_power_finds_no_mark_that_asks_for_values_which_were_removed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, late_syncs: bool
) -> None:
    """The store was refused, or with durability `os` changes were cut off that were synced."""
    left = directory.with_name("left")
    on_disk = left_on_disk = b""

    class Slots(mmap.mmap):
        def flush(self, *_: int) -> None:
            nonlocal on_disk
            super().flush()
            on_disk = self[:]

    monkeypatch.setattr(mmap, "mmap", Slots)
    monkeypatch.setattr(synced_mark, "SYNC_INTERVAL_SECONDS", 1e9)

    async def life() -> None:
        nonlocal left_on_disk
        store = opened(directory, late_syncs=late_syncs)
        await write_row(store, b"early")
        await store.sync()
        await delete_whole_file(store)
        await store.sync()
        await rest(store, writes=20)
        assert files(directory) == [2]
        await write_row(store, b"late")
        await store.sync()
        kill(directory, left)
        left_on_disk = on_disk
        await store.close()

    asyncio.run(life())
    (left / synced_mark.FILE).write_bytes(left_on_disk)
    boot(monkeypatch)

    async def check() -> None:
        store = opened(left, late_syncs=late_syncs)
        assert await store.get("small", b"row") == b"late"
        assert await numbers_of(store) == [16]
        await store.close()

    asyncio.run(check())


def test_a_kill_finds_no_mark_of_an_older_log_that_asks_for_values_which_were_removed(
    directory: Path,
) -> None:
    """Both logs had grown since the last sync, and the mark named the older one."""
    left = directory.with_name("left")

    async def life() -> None:
        store = opened(directory, late_syncs=True)
        await store.sync()
        await write_row(store, b"early")
        # As when memtables are full: another log begins.
        await store._flush([store._families["small"]])
        await delete_whole_file(store)
        for number in range(20):
            await write_row(store, b"%d" % number)
        await store.sync()
        assert files(directory) == [2]
        await write_row(store, b"late")
        kill(directory, left)
        await store.close()

    asyncio.run(life())

    async def check() -> None:
        store = opened(left, late_syncs=True)
        assert await store.get("small", b"row") == b"late"
        assert await numbers_of(store) == [16]
        await store.close()

    asyncio.run(check())
