"""No file can be opened, since there are too many: that is a pause, and no failed disk."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.storage.value_stores import (
    FILE_BYTES,
    LARGE,
    add,
    files,
    key_of,
    numbers_of,
    put,
    run,
    small_files,
    value_of,
)
from tests.waiting import turns, until

from magnetar_storage.rocksdb import engine as rocks
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import StoreFailed, WriteBatch

PER_FILE = FILE_BYTES // LARGE


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


@contextmanager
def used_up() -> Iterator[None]:
    """This process may open nothing more; what it closes, it may open again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    # All numbers below the highest one are taken: the limit counts numbers.
    highest = max(int(one) for one in os.listdir("/proc/self/fd"))
    while (number := os.open(os.devnull, os.O_RDONLY)) < highest:
        taken.append(number)
    os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


def test_the_next_file_is_begun_with_a_descriptor_in_reserve(directory: Path) -> None:
    """A broker ended as if its disk had failed."""

    async def scenario(store: RocksStore) -> None:
        await put(store, range(3))
        for start in (100, 200):
            with used_up():
                await store.write(add(WriteBatch(), range(start, start + PER_FILE)))
                await store.write(add(WriteBatch(), range(start + PER_FILE, start + PER_FILE + 3)))
            count = len(files(directory))
            await store.sync()
            # There is one in reserve again as soon as a file is opened.
            for number in (start + 50, start + 70):
                await put(store, range(number, number + PER_FILE))
            assert len(files(directory)) > count > 1

    run(directory, scenario)


def test_a_sync_waits_while_no_file_can_be_opened(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks, "OPENED_AGAIN_S", 0.01)

    async def scenario(store: RocksStore) -> None:
        await put(store, range(3))
        with used_up():
            # What a flush adds to the manifest has to be synced.
            store._mark._last = dataclasses.replace(store._mark._last, manifest_bytes=0)
            await store.write(add(WriteBatch(), range(3, 6)))
            syncing = asyncio.create_task(store.sync())
            await until(lambda: "ulimit -n" in caplog.text)
            assert not syncing.done()
        await syncing
        assert await numbers_of(store) == list(range(6))

    run(directory, scenario)


def test_a_file_that_is_read_takes_the_place_of_another_one(directory: Path) -> None:
    async def write(store: RocksStore) -> None:
        for number in range(0, 5 * PER_FILE, 5):
            await put(store, range(number, number + 5))

    async def read(store: RocksStore) -> None:
        with used_up():
            for number in (0, 4 * PER_FILE, PER_FILE, 0, 2 * PER_FILE):
                assert await store.get("payloads", key_of(number)) == value_of(number)

    run(directory, write)
    run(directory, read)


def test_a_batch_waits_while_no_file_can_be_begun(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks, "OPENED_AGAIN_S", 0.01)

    async def scenario(store: RocksStore) -> None:
        store._values._files._give_spare()
        batch = add(WriteBatch(), range(3))
        with used_up():
            store.write_ahead(batch)
            writing = asyncio.create_task(store.write(batch))
            await until(lambda: "ulimit -n" in caplog.text)
            await turns(20)
            assert not writing.done()
            # What needs no file goes on.
            assert await store.get("small", b"x") is None
        await writing
        await store.sync()
        assert await numbers_of(store) == [0, 1, 2]
        assert len(files(directory)) == 1

    run(directory, scenario)
    run(directory, _has_three)


async def _has_three(store: RocksStore) -> None:
    assert await numbers_of(store) == [0, 1, 2]


def test_another_error_fails_the_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: RocksStore) -> None:
        def refused(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refused)
        with pytest.raises(StoreFailed, match="Permission denied"):
            await store.write(add(WriteBatch(), range(3)))
        monkeypatch.undo()

    run(directory, scenario)
