"""Synced mark: a small file that says how far a store's own files were synced.

RocksDB cannot notice that the end of its newest log is missing: a truncated or missing log looks
like a log that never was longer. So after each sync the sizes of the newest log, of the manifest
and of the newest file of values are noted beside them. The note is written without a sync of its
own, and so survives the process; once a second it is synced too, so a power loss takes at most a
second of notes back. An older mark asks for less than there was, never for more. But it also says
which changes may not be synced, and the values of those are looked for at the next start. So before
a file of values is removed, the note names the newest log, and is synced.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from magnetar_core.process import durable_files
from magnetar_storage.data_dir.store_files import LOG, current_manifest, numbered
from magnetar_storage.store import StoreDamaged

FILE: Final = "SYNCED"
# The file has two slots, written in turn: an interrupted write leaves the other slot whole.
_SLOT_BYTES: Final = 512
_MARK = struct.Struct(">8sQQQQQQQ")
_CHECKSUM = struct.Struct(">I")
_MAGIC: Final = b"magnetr2"
SYNC_INTERVAL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Synced:
    """The synced sizes of a store's files. Zeros: nothing is known.

    Attributes:
        number: increases with every mark.
        manifest: number of the manifest's file.
        log: number of the newest write-ahead log.
        values: number of the newest file of values.
    """

    number: int = 0
    manifest: int = 0
    manifest_bytes: int = 0
    log: int = 0
    log_bytes: int = 0
    values: int = 0
    values_bytes: int = 0


def read_mark(directory: str) -> Synced:
    """Return the newest mark of a store.

    Raises:
        StoreDamaged: the file is missing, or neither slot holds a mark.
    """
    try:
        content = Path(directory, FILE).read_bytes()
    except FileNotFoundError:
        raise StoreDamaged(
            f"the file {FILE} is missing, which says what was synced", may_be_accepted=True
        ) from None
    marks = [_parse(content[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES)]
    found = [mark for mark in marks if mark is not None]
    if not found:
        raise StoreDamaged(
            f"{FILE} is damaged, so what was synced is not known", may_be_accepted=True
        )
    return max(found, key=lambda mark: mark.number)


def create_mark(directory: str, mark: Synced) -> None:
    """Create the file with a mark, whole or not at all."""
    path = Path(directory, FILE)
    part = path.with_name(f"{FILE}.part")
    with open(part, "wb") as file:
        file.write(_slot(mark) * 2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


class MarkWriter:
    """Writes the mark of an open store. Create it just after the store is opened.

    It stands in the way of every sync, in a thread beside the event loop's: after each call to the
    operating system it may have to wait for the other thread. So the mark is mapped into memory.
    """

    def __init__(self, directory: str, last: Synced) -> None:
        self._directory = directory
        self._last = last
        self._next_sync = 0.0
        with open(os.path.join(directory, FILE), "r+b") as file:
            self._slots = mmap.mmap(file.fileno(), 2 * _SLOT_BYTES)
        self._manifest, self._manifest_path = current_manifest(directory)
        self._log, self._log_path = self._newest_log()

    def end_of_log(self, *, is_newest: bool = False) -> tuple[int, int]:
        """Return the newest log's number and size between two writes: a sync then covers them.

        The sync may or may not cover data that is written meanwhile.

        Args:
            is_newest: whether it must not be the log before, which is looked at as long as it grows
                between two syncs.
        """
        log_bytes = self._log_bytes()
        if is_newest or (self._log, log_bytes) == (self._last.log, self._last.log_bytes):
            # If the log did not grow, there is a newer log.
            self._log, self._log_path = self._newest_log()
            log_bytes = self._log_bytes()
        return self._log, log_bytes

    def write(
        self,
        now_seconds: float,
        end_of_log: tuple[int, int],
        end_of_values: tuple[int, int] = (0, 0),
        *,
        durably: bool = False,
    ) -> None:
        """Note how far the store is synced.

        Args:
            end_of_log: what end_of_log() returned before the sync.
            end_of_values: the number and the size of the newest file of values, before the sync.
            durably: whether the note is to be on the disk when this returns.
        """
        manifest, manifest_bytes = self._synced_manifest()
        number = self._last.number + 1
        self._last = Synced(number, manifest, manifest_bytes, *end_of_log, *end_of_values)
        slot = number % 2 * _SLOT_BYTES
        self._slots[slot : slot + _SLOT_BYTES] = _slot(self._last)
        if durably or now_seconds >= self._next_sync:
            self._next_sync = now_seconds + SYNC_INTERVAL_SECONDS
            self._slots.flush()

    def close(self) -> None:
        """Note that the store is closed: its rows are in tables, and those are synced."""
        self._next_sync = 0.0
        try:
            self.write(0.0, self.end_of_log(), (self._last.values, self._last.values_bytes))
        finally:
            self._slots.close()

    def abandon(self) -> None:
        """Note that the store failed: nothing is known about its files."""
        self._slots.close()

    def _synced_manifest(self) -> tuple[int, int]:
        """Return the manifest's number and synced size.

        RocksDB adds to the manifest in threads of its own, and syncs it a moment later.
        """
        try:
            found = os.stat(self._manifest_path).st_size
        except FileNotFoundError:
            self._manifest, self._manifest_path = current_manifest(self._directory)
            found = os.stat(self._manifest_path).st_size
        if (self._manifest, found) != (self._last.manifest, self._last.manifest_bytes):
            durable_files.sync(self._manifest_path)
        return self._manifest, found

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log_path).st_size
        except FileNotFoundError:
            self._log, self._log_path = self._newest_log()
            return os.stat(self._log_path).st_size

    def _newest_log(self) -> tuple[int, Path]:
        return numbered(self._directory, LOG)[-1]


def _slot(mark: Synced) -> bytes:
    body = _MARK.pack(
        _MAGIC,
        mark.number,
        mark.manifest,
        mark.manifest_bytes,
        mark.log,
        mark.log_bytes,
        mark.values,
        mark.values_bytes,
    )
    return (body + _CHECKSUM.pack(google_crc32c.value(body))).ljust(_SLOT_BYTES, b"\x00")


def _parse(slot: bytes) -> Synced | None:
    body = slot[: _MARK.size]
    if len(slot) < _MARK.size + _CHECKSUM.size or not body.startswith(_MAGIC):
        return None
    if _CHECKSUM.unpack_from(slot, _MARK.size)[0] != google_crc32c.value(body):
        return None
    return Synced(*_MARK.unpack(body)[1:])
