"""Interface between Magnetar and the engine that stores its rows.

A store holds families of rows, each family ordered by key as bytes compare. Nothing of an engine
crosses this file: the same callers must one day run on a store whose rows live in S3, which is why
everything that may take time is awaited, reads too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from magnetar_core.invariants import BrokenInvariant

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2

# (PUT, family, key, value), (DELETE, family, key, b"") or (DELETE_RANGE, family, start, end)
Operation = tuple[int, str, bytes, bytes]

# Above every key in use: no family has keys that begin with 32 bytes of 0xFF.
KEY_END: Final = b"\xff" * 32


class StoreFailed(Exception):
    """The engine cannot go on: a write or sync failed, or a crash interrupted it.

    Rows that were not durable may or may not survive. Never retry: memory already runs ahead of the
    rows, so the process must end and start again from the durable rows.
    """


class StoreFenced(StoreFailed):
    """Another process opened the store and owns it; nothing is wrong with the store."""


class StoreDamaged(StoreFailed):
    """Durable data is missing, so the store was not opened. A person decides how to continue.

    Attributes:
        may_be_accepted: a person may go on without what is missing, with `magnetar storage
            accept-loss`: the newest changes, or values of rows.
    """

    def __init__(self, reason: str, *, may_be_accepted: bool = False) -> None:
        super().__init__(reason)
        self.may_be_accepted = may_be_accepted


class ValuesMissing(StoreDamaged):
    """A file of values is missing, or lost its end. All rows are there, and some have no values."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, may_be_accepted=True)


class RowsUnreadable(Exception):
    """Rows of a range are damaged, or the disk does not return them. The store goes on.

    Attributes:
        family: the family of the rows.
        rows: the rows of the range before the damage, in the order of the scan.
    """

    def __init__(
        self, reason: str, *, family: str = "", rows: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(reason)
        self.family = family
        self.rows = rows


def cannot_recover(error: RowsUnreadable) -> StoreDamaged:
    """Return the error of a server that cannot read the rows that it needs to start."""
    return StoreDamaged(
        f"rows of {error.family!r} cannot be read, and without them nothing can be served: {error};"
        " stop the server, and put back a copy of its data directory that was made while it was"
        " stopped"
    )


NEWEST_CHANGES: Final = (
    "the newest changes, which were acknowledged, and may tear transactions apart"
)


def or_accept_loss(place: str, without: str = NEWEST_CHANGES) -> str:
    """Return the end of an error's text: how to go on without what is missing.

    Args:
        place: of the store, as arguments of the command.
        without: what is lost then.
    """
    return f"; or go on without {without}: magnetar storage accept-loss {place}"


class StoreInUse(Exception):
    """Another process uses this data directory. Nothing was touched; stop that process first."""


class WriteBatch:
    """Operations that take effect together, in the order in which they were added.

    Delete by key up to a few thousand rows and by range beyond, a few ranges a second: in RocksDB
    each range makes its family's next point gets slower.

    Args:
        on_operation: called before each operation is added, until it returns True. If it raises,
            that operation is not added.
    """

    __slots__ = ("_byte_count", "_counted", "_on_operation", "operations")

    def __init__(self, on_operation: Callable[[], bool] | None = None) -> None:
        self.operations: list[Operation] = []
        # Of the first operations, and how many these are.
        self._byte_count = 0
        self._counted = 0
        self._on_operation = on_operation

    def __len__(self) -> int:
        return len(self.operations)

    @property
    def byte_count(self) -> int:
        """The bytes of all keys and values."""
        added = self.operations[self._counted :]
        if added:
            _, _, keys, values = zip(*added, strict=True)
            self._byte_count += sum(map(len, keys)) + sum(map(len, values))
            self._counted += len(added)
        return self._byte_count

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a row."""
        if self._on_operation is not None and self._on_operation():
            self._on_operation = None
        self.operations.append((PUT, family, key, value))

    def delete(self, family: str, key: bytes) -> None:
        """Delete a row."""
        if self._on_operation is not None and self._on_operation():
            self._on_operation = None
        self.operations.append((DELETE, family, key, b""))

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Delete start <= key < end. An empty range adds nothing.

        RocksDB accepts a range whose end lies before its start and fails much later, at its next
        flush, so such a range is stopped here.
        """
        if start > end:
            raise BrokenInvariant(f"range of {family} ends before it starts")
        if start == end:
            return
        if self._on_operation is not None and self._on_operation():
            self._on_operation = None
        self.operations.append((DELETE_RANGE, family, start, end))


class Reader(Protocol):
    """Reads that a store and a snapshot have in common."""

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return the row's value, or None.

        Raises:
            RowsUnreadable: the row could not be read.
            StoreFailed: the store cannot go on, or is closed.
            KeyError: the store was opened without this family.
        """

    async def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        rows_max: int,
        bytes_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        r"""Return rows with start <= key < end, by ascending key, or by descending key if reverse.

        Args:
            rows_max: at least 1. Fewer rows than this, and no bytes_max: the range is exhausted.
            bytes_max: stop with the row that brings keys and values to this size; a first row is
                returned whatever its size.
        Raises:
            RowsUnreadable: a row could not be read; the rows before it come with the error.
            StoreFailed: the store cannot go on, or is closed.
            KeyError: the store was opened without this family.

        To page, start again at the last key + b"\x00" (reverse: end at the last key) until a page
        is empty.
        """


class Snapshot(Reader, Protocol):
    """All families as they were when the snapshot was taken. Close it soon: it pins old rows."""

    async def close(self) -> None:
        """Release the view. Repeating it is harmless."""


class Store(Reader, Protocol):
    """Rows of a process. After the first StoreFailed, every call raises it."""

    async def write(self, batch: WriteBatch) -> None:
        """Apply a whole batch or nothing; get and scan see it when this returns.

        The batch is not durable yet: a crash loses a tail of the batches written since the last
        sync.

        Raises:
            StoreFailed: the batch may or may not be there after the next start.
        """

    def write_ahead(self, batch: WriteBatch) -> None:
        """Begin to write the batch that is written next, which may still grow.

        So a store need not do all of it when the batch is written. Nothing is applied; a failure is
        raised by the write.
        """

    async def sync(self) -> None:
        """Return when everything written before this call is durable.

        Raises:
            StoreFailed: any of it may be lost.
        """

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of the keys with start <= key < end, by ascending key.

        The store seeks from each beginning to the key after its rows, and reads no values: the cost
        depends on the number of beginnings, not on their rows. Deleted rows that an engine has not
        dropped yet count too, so the call stops early among many of them.

        Args:
            length: size of a beginning, in bytes; a shorter key is a beginning by itself.
            count_max: at least 1.
        Returns:
            At most count_max beginnings, perhaps none, and the key to continue at; None: nothing is
                left.
        Raises:
            RowsUnreadable: a key could not be read.
            StoreFailed: the store cannot go on, or is closed.
            KeyError: the store was opened without this family.
        """

    async def snapshot(self) -> Snapshot:
        """Freeze a view of all families.

        Raises:
            StoreFailed: the store cannot go on, or is closed.
        """

    def free_bytes(self) -> int:
        """Return the free space of the volume, in bytes."""

    async def close(self) -> None:
        """Release the store. It promises no durability: sync first. Repeating it is harmless."""


async def scan_readable(
    reader: Reader,
    family: str,
    start: bytes,
    end: bytes,
    *,
    rows_max: int,
    bytes_max: int | None = None,
) -> Sequence[tuple[bytes, bytes]]:
    """Scan like `Reader.scan`, but return the rows before an unreadable row.

    Raises:
        RowsUnreadable: the first row is unreadable.
    """
    try:
        return await reader.scan(family, start, end, rows_max=rows_max, bytes_max=bytes_max)
    except RowsUnreadable as error:
        if not error.rows:
            raise
        return error.rows


def behind_prefix(prefix: bytes, length: int) -> bytes:
    """Return the smallest key after all keys with this beginning, as `Store.prefixes` uses it."""
    return end_of_prefix(prefix) if len(prefix) == length else prefix + b"\x00"


def end_of_prefix(prefix: bytes) -> bytes:
    """Return the smallest key above all that begin with prefix.

    KEY_END if every byte of the prefix is 0xFF, or the prefix is empty.
    """
    stem = prefix.rstrip(b"\xff")
    if not stem:
        return KEY_END
    return stem[:-1] + bytes((stem[-1] + 1,))
