"""Values that are appended while their batch still grows.

Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.storage.killing import kill
from tests.storage.value_stores import (
    LARGE,
    add,
    files,
    full,
    key_of,
    numbers_after,
    numbers_of,
    opened,
    put,
    rest,
    run,
)

from magnetar_storage.data_dir.store_files import VALUES, numbered
from magnetar_storage.data_dir.synced_mark import read_mark
from magnetar_storage.rocksdb import value_rounds
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import StoreFailed, WriteBatch


def ahead(store: RocksStore) -> WriteBatch:
    """Append a batch's values ahead: they fill a file, and begin the next one."""
    batch = add(WriteBatch(), range(100, 120))
    store.write_ahead(batch)
    add(batch, range(120, 124))
    store.write_ahead(batch)
    return batch


def test_values_that_were_appended_ahead_are_no_garbage(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their file is whole, and their rows come with the write that looks for garbage first."""
    monkeypatch.setattr(value_rounds, "VALUES_AT_ONCE_MAX", 1_000)

    async def scenario(store: RocksStore) -> None:
        # The first write after the start looks at nothing.
        await rest(store, writes=2)
        batch = ahead(store)
        assert files(directory) == [1, 2]
        add(batch, [124])
        await store.write(batch)
        await store.sync()
        await rest(store)
        assert await numbers_of(store) == list(range(100, 125))

    run(directory, scenario)
    run(directory, numbers_after(range(100, 125)))


def test_a_file_that_became_whole_ahead_of_a_write_may_go_with_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came back on the list behind the look that gave it up, and no start found it again."""
    monkeypatch.setattr(value_rounds, "VALUES_AT_ONCE_MAX", 1_000)

    async def scenario(store: RocksStore) -> None:
        await put(store, range(16))
        batch = WriteBatch()
        for number in range(16):
            batch.delete("payloads", key_of(number))
        await store.write(batch)
        batch = add(WriteBatch(), range(100, 104))
        store.write_ahead(batch)
        assert files(directory) == [1, 2]
        await store.write(batch)
        await store.sync()
        assert files(directory) == [2]

    run(directory, scenario)
    run(directory, numbers_after(range(100, 104)))


def test_a_value_is_appended_once(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        batch = ahead(store)
        store.write_ahead(batch)
        await store.write(batch)

    run(directory, scenario)
    stored = sum(path.stat().st_size for _, path in numbered(str(directory), VALUES))
    assert 24 * LARGE < stored < 25 * LARGE


def test_a_kill_leaves_nothing_of_what_was_appended_ahead(directory: Path) -> None:
    left = directory.with_name("left")

    async def scenario(store: RocksStore) -> None:
        await put(store, range(4))
        ahead(store)
        kill(directory, left)
        # As when the machine goes down right behind the sync that was under way.
        await store.sync()

    run(directory, scenario)

    async def check(store: RocksStore) -> None:
        assert files(left) == [1]
        await put(store, range(4, 40))
        await rest(store)
        assert await numbers_of(store) == list(range(40))

    run(left, check)
    run(left, numbers_after(range(40)))


def test_a_sync_vouches_for_files_that_are_listed(directory: Path) -> None:
    """The next process syncs values from there on, before anybody relies on them."""

    async def scenario(store: RocksStore) -> None:
        await put(store, range(4))
        end = read_mark(str(directory))
        assert end is not None
        ahead(store)
        await store.sync()
        mark = read_mark(str(directory))
        assert (mark.values, mark.values_bytes) == (end.values, end.values_bytes)

    run(directory, scenario)


def test_a_batch_that_is_never_written_leaves_no_trace(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        ahead(store)
        await put(store, range(4))
        await put(store, range(4, 40))
        await rest(store)
        assert await numbers_of(store) == list(range(40))

    run(directory, scenario)
    run(directory, numbers_after(range(40)))


def test_nothing_is_appended_ahead_with_late_syncs(directory: Path) -> None:
    """No batch waits there while another one is synced."""

    async def scenario() -> None:
        store = opened(directory, late_syncs=True)
        batch = ahead(store)
        assert files(directory) == []
        await store.write(batch)
        assert len(await numbers_of(store)) == 24
        await store.close()

    asyncio.run(scenario())


def test_a_disk_that_takes_no_value_ahead_fails_the_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = opened(directory)
        await put(store, range(4))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", full)
            batch = add(WriteBatch(), [4])
            store.write_ahead(batch)
        with pytest.raises(StoreFailed, match="No space left"):
            await store.write(batch)
        store.write_ahead(batch)
        await store.close()

    asyncio.run(scenario())
    run(directory, numbers_after(range(4)))
