"""Stores with small files of values, which look for garbage at each write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from tests.storage.killing import kill

from magnetar_storage.data_dir import value_files
from magnetar_storage.data_dir.store_files import VALUES, numbered
from magnetar_storage.rocksdb import value_rounds
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END, WriteBatch

FAMILIES = ("small", "payloads", "others", "meta")
PAYLOADS = ("payloads", "others")
FILE_BYTES = 256 << 10
LARGE = 16 << 10


def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are whole soon, and each write looks at some values of a file."""
    monkeypatch.setattr(value_files, "FILE_BYTES", FILE_BYTES)
    monkeypatch.setattr(value_rounds, "ROUND_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(value_rounds, "ROUNDS_SHARE_MAX", 1e9)
    monkeypatch.setattr(value_rounds, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(value_rounds, "VALUES_A_SECOND", 1e12)
    monkeypatch.setattr(value_rounds, "VALUES_AT_ONCE_MAX", 5)


def opened(path: Path, *, late_syncs: bool = False) -> RocksStore:
    return RocksStore.open(path, FAMILIES, payload_families=PAYLOADS, late_syncs=late_syncs)


def run(path: Path, scenario: Callable[[RocksStore], Awaitable[None]]) -> None:
    async def opened_and_closed() -> None:
        store = opened(path)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(opened_and_closed())


def value_of(number: int) -> bytes:
    return Random(number).randbytes(LARGE)


def key_of(number: int) -> bytes:
    return b"%06d" % number


def add(batch: WriteBatch, numbers: Sequence[int], *, family: str = "payloads") -> WriteBatch:
    for number in numbers:
        batch.put(family, key_of(number), value_of(number))
    return batch


async def put(store: RocksStore, numbers: Sequence[int], *, family: str = "payloads") -> None:
    await store.write(add(WriteBatch(), numbers, family=family))
    await store.sync()


def killed(directory: Path, numbers: Sequence[int]) -> Path:
    """Return what a kill leaves of a store that has synced these values."""
    left = directory.with_name("left")

    async def scenario(store: RocksStore) -> None:
        await put(store, numbers)
        kill(directory, left)

    run(directory, scenario)
    return left


async def fill_two_files(store: RocksStore) -> None:
    """A whole one with 40 values, and one that grows with 20."""
    await put(store, range(40))
    await put(store, range(40, 60))


async def delete(store: RocksStore, numbers: Sequence[int]) -> None:
    batch = WriteBatch()
    for number in numbers:
        batch.delete("payloads", key_of(number))
    await store.write(batch)
    await store.sync()


async def rest(store: RocksStore, *, writes: int = 100) -> None:
    """Enough small writes to look at everything."""
    for number in range(writes):
        batch = WriteBatch()
        batch.put("small", b"rest", b"%d" % number)
        await store.write(batch)
        await store.sync()


async def numbers_of(store: RocksStore) -> list[int]:
    rows = await store.scan("payloads", b"", KEY_END, rows_max=10_000)
    assert all(value == value_of(int(key)) for key, value in rows)
    return [int(key) for key, _ in rows]


def files(path: Path) -> list[int]:
    return [number for number, _ in numbered(str(path), VALUES)]


def numbers_after(expected: Sequence[int]) -> Callable[[RocksStore], Awaitable[None]]:
    async def check(store: RocksStore) -> None:
        assert await numbers_of(store) == list(expected)

    return check


def full(handle: int, buffers: object, position: int) -> int:
    raise OSError(28, "No space left on device")
