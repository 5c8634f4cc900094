"""Lives of a store, one behind the other: stopped, killed, or ended by a loss of power.

What a start finds is a moment of the life before: the last one after a kill, and after a loss of
power any from the last sync on. `VALUE_CHAINS=1000` tries so many chains of lives.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.storage.killing import kill
from tests.storage.value_stores import opened, small_files

from magnetar_core.process import durable_files
from magnetar_storage.data_dir import synced_mark, unsynced_note, value_files
from magnetar_storage.data_dir.store_files import LOG, VALUES, numbered
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb import value_log
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import DELETE, KEY_END, PUT, WriteBatch

CHAINS = int(os.environ.get("VALUE_CHAINS", "4"))
LIVES = 4
PAGE = 4_096
Rows = dict[bytes, bytes]


class Machine:
    """Notes what its disk has: synced parts of files, names of files of values, and the mark."""

    def __init__(self, boot_id: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        boot_id.write_text("first\n")
        monkeypatch.setattr(unsynced_note, "BOOT_ID", boot_id)
        self._boot_id = boot_id
        self.sizes: dict[str, int] = {}
        self.names: set[str] = set()
        self.mark = b""
        machine = self
        sync_data, sync_path, sync_store = os.fdatasync, durable_files.sync, RocksStore._sync

        def data_synced(handle: int) -> None:
            size = os.fstat(handle).st_size
            sync_data(handle)
            machine.sizes[Path(f"/proc/self/fd/{handle}").readlink().name] = size

        def path_synced(path: Path) -> None:
            sync_path(path)
            if path.is_dir():
                machine.names.update(file.name for _, file in numbered(str(path), VALUES))
            else:
                machine.sizes[path.name] = path.stat().st_size

        def store_synced(store: RocksStore, *arguments: Any) -> None:
            _, file = numbered(store._path, LOG)[-1]
            size = file.stat().st_size
            sync_store(store, *arguments)
            machine.sizes[file.name] = size

        class Slots(mmap.mmap):
            def flush(self, *_: int) -> None:
                super().flush()
                machine.mark = self[:]

        monkeypatch.setattr(os, "fdatasync", data_synced)
        monkeypatch.setattr(durable_files, "sync", path_synced)
        monkeypatch.setattr(RocksStore, "_sync", store_synced)
        monkeypatch.setattr(mmap, "mmap", Slots)

    def began(self, path: Path) -> None:
        """Everything that there is when a store is open counts as synced."""
        # Other files come and go in threads of RocksDB.
        kept = [*numbered(str(path), VALUES), numbered(str(path), LOG)[-1]]
        self.sizes = {file.name: file.stat().st_size for _, file in kept}
        self.names = set(self.sizes)
        self.mark = (path / synced_mark.FILE).read_bytes()

    def lose_power(self, path: Path, random: Random) -> None:
        """Leave what was synced, and any part of the rest."""
        for _, file in numbered(str(path), VALUES):
            if file.name not in self.names and random.random() < 0.3:
                file.unlink()
            else:
                self._tear(file, random)
        # RocksDB has synced the others when it began the newest one.
        self._tear(numbered(str(path), LOG)[-1][1], random)
        if random.random() < 0.7:
            (path / synced_mark.FILE).write_bytes(self.mark)
        self._boot_id.write_text(f"{random.random()}\n")

    def _tear(self, file: Path, random: Random) -> None:
        content = bytearray(file.read_bytes())
        kept = self.sizes.get(file.name, 0)
        how = random.choice(("keep", "cut", "zeros", "pages"))
        if how == "keep" or kept >= len(content):
            return
        at = random.randrange(kept, len(content))
        if how == "cut":
            del content[at:]
        elif how == "zeros":
            content[at:] = bytes(len(content) - at)
        else:
            for page in range(kept - kept % PAGE, len(content), PAGE):
                if random.random() < 0.5:
                    begin, end = max(page, kept), min(page + PAGE, len(content))
                    content[begin:end] = bytes(end - begin)
        file.write_bytes(content)


class Life:
    """One process with the store.

    Attributes:
        moments: the rows after each batch, from the one on that was synced last.
    """

    def __init__(self, store: RocksStore, rows: Rows, random: Random) -> None:
        self.moments = [rows]
        self._store = store
        self._random = random

    def add(self, batch: WriteBatch) -> None:
        """Add a value, of which some are large."""
        random = self._random
        size = random.choice((10, 4_095, 4_096, 5_000, 30_000, 60_000))
        batch.put("payloads", self._key(), random.randbytes(8) * (size // 8))

    async def write(self, batch: WriteBatch) -> None:
        random = self._random
        for _ in range(random.randrange(5)):
            self.add(batch)
            if random.random() < 0.3:
                self._store.write_ahead(batch)
        for _ in range(random.randrange(5)):
            batch.delete("payloads", self._key())
        if random.random() < 0.2:
            start = random.randrange(60)
            batch.delete_range("payloads", b"%03d" % start, b"%03d" % (start + 30))
        batch.put("small", b"small", random.randbytes(3_000))
        await self._store.write(batch)
        self.moments.append(_applied(self.moments[-1], batch))

    async def sync(self) -> WriteBatch:
        """Sync, and return the next batch, of which some values may be appended already."""
        batch = WriteBatch()
        syncing = asyncio.ensure_future(self._store.sync())
        has_begun = asyncio.Event()
        asyncio.get_running_loop().call_soon(has_begun.set)
        await has_begun.wait()
        for _ in range(self._random.choice((0, 1, 3, 5))):
            self.add(batch)
            self._store.write_ahead(batch)
        await syncing
        del self.moments[:-1]
        return batch

    def _key(self) -> bytes:
        return b"%03d" % self._random.randrange(60)


def _applied(rows: Rows, batch: WriteBatch) -> Rows:
    changed = dict(rows)
    for kind, _, key, value in batch.operations:
        if kind == PUT:
            changed[key] = value
        elif kind == DELETE:
            changed.pop(key, None)
        else:
            for one in [one for one in changed if key <= one < value]:
                del changed[one]
    return changed


async def rows_of(store: RocksStore) -> Rows:
    return {
        key: value
        for family in ("payloads", "small")
        for key, value in await store.scan(family, b"", KEY_END, rows_max=1_000)
    }


async def chain(path: Path, random: Random, machine: Machine, *, late_syncs: bool) -> None:
    moments: list[Rows] = [{}]
    for number in range(LIVES):
        store = opened(path, late_syncs=late_syncs)
        machine.began(path)
        found = await rows_of(store)
        assert found in moments
        life = Life(store, found, random)
        batch = WriteBatch()
        for _ in range(random.randrange(5, 60)):
            await life.write(batch)
            batch = WriteBatch()
            if random.random() < (0.3 if late_syncs else 0.8):
                batch = await life.sync()
        left = path.with_name(f"left-{number}")
        how = random.choice(("stop", "kill", "power"))
        kill(path, left)
        if how == "power":
            machine.lose_power(left, random)
        await store.close()
        if how == "stop":
            shutil.rmtree(left)
        else:
            path = left
        moments = life.moments if how == "power" else life.moments[-1:]


@pytest.mark.parametrize("late_syncs", [False, True])
@pytest.mark.parametrize("seed", range(CHAINS))
def test_each_start_finds_a_moment_of_the_life_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, late_syncs: bool
) -> None:
    small_files(monkeypatch)
    random = Random(seed)
    monkeypatch.setattr(value_files, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(value_log, "MOVED_BYTES_AT_ONCE", 40 << 10)
    monkeypatch.setattr(rocks_options, "ROW_MEMTABLE_BYTES", 64 << 10)
    monkeypatch.setattr(synced_mark, "SYNC_INTERVAL_SECONDS", random.choice((0.0, 0.05, 1e9)))
    (tmp_path / "data").mkdir()
    machine = Machine(tmp_path / "boot_id", monkeypatch)
    asyncio.run(chain(tmp_path / "data", random, machine, late_syncs=late_syncs))
