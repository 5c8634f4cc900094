"""The synced mark never says more than what a loss of power leaves."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar_storage.data_dir.directory_check import check_directory
from magnetar_storage.data_dir.store_files import current_manifest
from magnetar_storage.data_dir.synced_mark import MarkWriter, read_mark
from magnetar_storage.offline.accepted_loss import lost_from
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import WriteBatch


class Power:
    """Notes how much of each file this process has synced, since the test began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: dict[int, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def noting(file: int) -> None:
            sync(file)
            found = os.fstat(file)
            self._synced[found.st_ino] = found.st_size

        return noting

    def lose(self, path: Path, synced_before: int) -> None:
        """Nothing stays of a file but what was synced, or lay there before."""
        os.truncate(path, max(synced_before, self._synced.get(path.stat().st_ino, 0)))


async def fill(directory: Path) -> None:
    store = RocksStore.open(directory, ("rows",))
    batch = WriteBatch()
    batch.put("rows", b"key", b"value")
    await store.write(batch)
    await store.sync()
    await store.close()


def first_record(content: bytes) -> bytes:
    """Of a manifest or a log: checksum, length, type, and what it holds."""
    return content[: 7 + struct.unpack_from("<H", content, 4)[0]]


@pytest.mark.parametrize("closed", [False, True])
def test_what_rocksdb_is_adding_to_the_manifest_is_not_taken_for_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """After a loss of power between its write and its sync a store was refused for good."""
    asyncio.run(fill(tmp_path))
    _, manifest = current_manifest(str(tmp_path))
    synced_bytes = manifest.stat().st_size
    last = read_mark(str(tmp_path))
    assert last is not None
    writer = MarkWriter(str(tmp_path), last)
    power = Power(monkeypatch)
    with manifest.open("ab") as file:
        # As a thread of RocksDB does at the end of a flush, before it syncs.
        file.write(first_record(manifest.read_bytes()))
    writer.write(10.0, writer.end_of_log())
    if closed:
        writer.close()
    else:
        writer.abandon()
    power.lose(manifest, synced_bytes)
    assert check_directory(str(tmp_path)).mark is not None
    assert lost_from(str(tmp_path)) is None
