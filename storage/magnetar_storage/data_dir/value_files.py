"""Files of values: each value is appended once, and read with a single call.

One file grows; the others are whole. In front of each value stands its key, so that a file can be
asked which rows it serves. Numbers ascend, and the event loop's thread calls everything but `sync`
and `unlink`.
Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from magnetar_core.process import descriptors, durable_files
from magnetar_storage.data_dir.store_files import values_path
from magnetar_storage.data_dir.value_pointer import Pointer, read_marked

log = logging.getLogger(__name__)

# A file that reached this size is whole, and the next one begins.
FILE_BYTES: Final = 64 << 20
# Files that are kept open for reads, if the process may have enough.
OPEN_FILES_MAX: Final = 128
_MAGIC: Final = b"magnetar values\x01"
# Lengths of family, key and value; checksum of these, of family and of key.
_LENGTHS = struct.Struct(">BHI")
_CHECKSUM = struct.Struct(">I")
_HEAD_BYTES: Final = _LENGTHS.size + _CHECKSUM.size
# Enough for the head of any record.
_HEAD_BYTES_MAX: Final = _HEAD_BYTES + 0xFF + 0xFFFF
_HEAD_BYTES_USUAL: Final = 256
# The most buffers that Linux takes in one call.
_BUFFERS_MAX: Final = 1_024


class ValueUnreadable(Exception):
    """A value is damaged, or its file is gone."""


class HeadDamaged(ValueUnreadable):
    """The head of a value is damaged, so that the values behind it cannot be found by heads."""


class Record(NamedTuple):
    """A value to store: the family and the key of its row, and the value."""

    family: str
    key: bytes
    value: bytes


class Place(NamedTuple):
    """A value in a file: the row that it was written for, and where it lies.

    Attributes:
        position: where the value begins.
        length: of the value.
    """

    family: str
    key: bytes
    position: int
    length: int

    @property
    def end(self) -> int:
        """Offset at which the next record begins."""
        return self.position + self.length


class ValueFiles:
    """The files of a directory.

    Args:
        sizes: of each file that there is, by number. The last of them grows.
    """

    def __init__(self, directory: str, sizes: Mapping[int, int]) -> None:
        self._directory = directory
        self.sizes = dict(sorted(sizes.items()))
        self.active = max(self.sizes, default=0)
        self._handles: dict[int, int] = {}
        self._open_max = min(OPEN_FILES_MAX, descriptors.shares().files // 8)
        # A descriptor in reserve, for a file that has to be opened when all others are in use.
        self._spare: int | None = None
        self._take_spare()
        # Files that were written to since their last sync began, with their sizes then.
        self._unsynced: dict[int, int] = {}
        # A process before this one may have ended between a new file and its sync.
        self._has_new_name = True
        # The file that grew is whole, though it is not full.
        self._has_ended = False

    @property
    def end(self) -> tuple[int, int]:
        """The number and the size of the file that grows; zeros: there is none."""
        return self.active, self.sizes.get(self.active, 0)

    def pass_over_torn_end(self, synced_bytes: int) -> None:
        """Leave the bytes that a process began to append when it ended: no row points there.

        The next values go to another file, so that nothing is written over. Otherwise the values
        after it could not be examined, and the file would never be found to be garbage.

        Args:
            synced_bytes: of the file that grows. Damage before that is not a torn end, and not
                looked for.
        """
        end = max(synced_bytes, len(_MAGIC))
        try:
            while (place := self._place(self.active, end)) is not None:
                end = place.end
        except OSError:
            # Nothing is known about its end, so it stays as it is.
            return
        if end < self.sizes[self.active]:
            log.info(
                "%s ends with a value that was not written whole; the next ones go to another file",
                self._name(self.active),
            )
            self.end_active()
            self.sizes[self.active] = end

    def end_active(self) -> None:
        """Let the next values go to another file than the last one."""
        self._has_ended = True

    def begin_if_full(self) -> int | None:
        """Begin a file if there is none, or the last one is full; return the number of the last.

        None: nothing was begun. The number is 0 if there was none.

        Raises:
            OSError: no file can be begun. No effect if the descriptors are used up.
        """
        if self.active and self.sizes[self.active] < FILE_BYTES and not self._has_ended:
            return None
        handle = self._open(self.active + 1, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._has_ended = False
        before, self.active = self.active, self.active + 1
        self._handles[self.active] = handle
        self.sizes[self.active] = 0
        self._has_new_name = True
        self._append([_MAGIC])
        return before

    def append(self, records: Sequence[Record]) -> list[Pointer]:
        """Add values to the file that grows. They are with the operating system then.

        Raises:
            OSError: some may not have been written; nothing points to them.
        """
        position = self.sizes[self.active]
        buffers: list[bytes] = []
        pointers: list[Pointer] = []
        for family, key, value in records:
            head = _head(family, key, len(value))
            position += len(head)
            buffers += (head, value)
            checksum = google_crc32c.value(value)
            pointers.append(Pointer(self.active, position, len(value), checksum))
            position += len(value)
        self._append(buffers)
        return pointers

    def read(self, pointer: Pointer) -> bytes:
        """Return a value.

        Raises:
            ValueUnreadable: it is damaged.
        """
        try:
            value = self._whole(pointer)
        except OSError as error:
            raise ValueUnreadable(f"{self._name(pointer.file)} cannot be read: {error}") from error
        if value is None:
            raise ValueUnreadable(
                f"{self._name(pointer.file)} is damaged: the {pointer.length} bytes from byte"
                f" {pointer.position} on are not those that were written"
            )
        return value

    def has(self, pointer: Pointer) -> bool:
        """Return whether a value is there, and whole.

        Raises:
            OSError: the disk does not say.
        """
        try:
            return self._whole(pointer) is not None
        except FileNotFoundError:
            return False

    def resolve(self, row: bytes) -> bytes:
        """Return the value of a row that begins with MARKED.

        Raises:
            ValueUnreadable: it is damaged.
            RowDamaged: the row is.
        """
        found = read_marked(row)
        return self.read(found) if isinstance(found, Pointer) else found

    def places(self, file: int) -> Iterator[Place]:
        """Yield where values lie, in the order of the file.

        Raises:
            HeadDamaged: the head of the next value is damaged.
            ValueUnreadable: the file cannot be read.
        """
        at = len(_MAGIC)
        while at < self.sizes[file]:
            try:
                place = self._place(file, at)
            except OSError as error:
                raise ValueUnreadable(f"{self._name(file)} cannot be read: {error}") from error
            if place is None:
                raise HeadDamaged(f"{self._name(file)} is damaged: no value begins at byte {at}")
            yield place
            at = place.end

    def unsynced(self) -> dict[int, tuple[int, int]]:
        """Return files that sync() has to sync: handle and size of each, by number."""
        return {file: (self._handles[file], size) for file, size in self._unsynced.items()}

    def sync(self, unsynced: Mapping[int, tuple[int, int]]) -> None:
        """Make files durable that unsynced() named. For a worker thread.

        Raises:
            OSError: something may be lost.
        """
        for handle, _ in unsynced.values():
            os.fdatasync(handle)
        if self._has_new_name and unsynced:
            # A file that is begun meanwhile sets it again.
            self._has_new_name = False
            try:
                durable_files.sync(Path(self._directory))
            except OSError:
                self._has_new_name = True
                raise

    def synced(self, unsynced: Mapping[int, tuple[int, int]]) -> None:
        """Note that files are durable that unsynced() named."""
        for file, (_, size) in unsynced.items():
            if self._unsynced.get(file) == size:
                del self._unsynced[file]

    def forget(self, files: Iterable[int]) -> None:
        """Close files, and forget them: no row points to them."""
        for file in files:
            self.sizes.pop(file, None)
            self._unsynced.pop(file, None)
            handle = self._handles.pop(file, None)
            if handle is not None:
                os.close(handle)

    def unlink(self, files: Iterable[int]) -> None:
        """Remove files that were forgotten. For a worker thread."""
        for file in files:
            values_path(self._directory, file).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files. Repeating it is harmless."""
        while self._handles:
            os.close(self._handles.popitem()[1])
        self._give_spare()

    def _append(self, buffers: Sequence[bytes]) -> None:
        handle = self._handle(self.active)
        position = self.sizes[self.active]
        for first in range(0, len(buffers), _BUFFERS_MAX):
            part: list[bytes | memoryview] = list(buffers[first : first + _BUFFERS_MAX])
            while part:
                written = os.pwritev(handle, part, position)
                position += written
                part = _behind(part, written)
        self.sizes[self.active] = position
        self._unsynced[self.active] = position

    def _whole(self, pointer: Pointer) -> bytes | None:
        """Return a value; None: other bytes are in its place, or fewer."""
        file, position, length, checksum = pointer
        value = os.pread(self._handle(file), length, position)
        if len(value) != length or google_crc32c.value(value) != checksum:
            return None
        return value

    def _place(self, file: int, at: int) -> Place | None:
        """Return the record at a position; None: there is none that is whole."""
        handle = self._handle(file)
        head = os.pread(handle, _HEAD_BYTES_USUAL, at)
        if len(head) < _HEAD_BYTES:
            return None
        name_bytes, key_bytes, length = _LENGTHS.unpack_from(head)
        head_bytes = _HEAD_BYTES + name_bytes + key_bytes
        if head_bytes > len(head):
            head = os.pread(handle, _HEAD_BYTES_MAX, at)
        name_end = _HEAD_BYTES + name_bytes
        name, key = head[_HEAD_BYTES:name_end], head[name_end:head_bytes]
        checksum = google_crc32c.value(head[: _LENGTHS.size] + name + key)
        if _CHECKSUM.unpack_from(head, _LENGTHS.size)[0] != checksum:
            return None
        place = Place(name.decode(), key, at + head_bytes, length)
        return place if place.end <= self.sizes[file] else None

    def _handle(self, file: int) -> int:
        handle = self._handles.get(file)
        if handle is not None:
            return handle
        flags = os.O_RDWR if file == self.active else os.O_RDONLY
        handle = self._open(file, flags)
        if len(self._handles) >= self._open_max:
            self._close_oldest()
        self._handles[file] = handle
        return handle

    def _open(self, file: int, flags: int) -> int:
        """Open a file. If the descriptors are used up, close another file, or use the spare one.

        Raises:
            OSError: it cannot be opened.
        """
        if self._spare is None:
            self._take_spare()
        path, flags = values_path(self._directory, file), flags | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except OSError as error:
            if not descriptors.are_used_up(error) or not (
                self._close_oldest() or self._give_spare()
            ):
                raise
        log.warning("too many open files: another one was closed to open %s", self._name(file))
        return os.open(path, flags, 0o600)

    def _close_oldest(self) -> bool:
        """Close the file that has been open for longest. False: all of them are written to."""
        for old in self._handles:
            if old != self.active and old not in self._unsynced:
                os.close(self._handles.pop(old))
                return True
        return False

    def _take_spare(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_spare(self) -> bool:
        spare, self._spare = self._spare, None
        if spare is None:
            return False
        os.close(spare)
        return True

    def _name(self, file: int) -> str:
        return values_path(self._directory, file).name


def _head(family: str, key: bytes, value_bytes: int) -> bytes:
    name = family.encode()
    lengths = _LENGTHS.pack(len(name), len(key), value_bytes)
    checksum = _CHECKSUM.pack(google_crc32c.value(lengths + name + key))
    return lengths + checksum + name + key


def _behind(buffers: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """Return the rest of buffers after so many bytes."""
    for place, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[place + 1 :]]
        written -= len(buffer)
    return []
