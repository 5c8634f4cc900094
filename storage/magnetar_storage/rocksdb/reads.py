"""Reads of RocksDB's rows. A failed read reports the rows that it read before; the store goes on.

Every block and every value has a checksum, so damaged rows are never returned as
if they were right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import rocksdict

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.data_dir.value_pointer import MARKED
from magnetar_storage.store import RowsUnreadable, StoreFailed

Row = tuple[bytes, bytes]
# Returns the value of a row that begins with MARKED.
Resolve = Callable[[bytes], bytes]


def get_row(
    family: rocksdict.Rdict, name: str, key: bytes, resolve: Resolve | None = None
) -> bytes | None:
    """Return a row's value; see `Reader.get`.

    Args:
        resolve: of families whose values may lie in files of their own.
    """
    try:
        value: bytes | None = family.get(key)
        if resolve is not None and value is not None and value.startswith(MARKED):
            return resolve(value)
    except Exception as error:
        raise RowsUnreadable(str(error), family=name) from error
    return value


def scan_rows(
    family: rocksdict.Rdict,
    name: str,
    start: bytes,
    end: bytes,
    rows_max: int,
    bytes_max: int | None,
    reverse: bool,
    resolve: Resolve | None = None,
) -> list[Row]:
    """Return the rows of a range; see `Reader.scan`, and get_row()."""
    options = rocksdict.ReadOptions()
    options.set_background_purge_on_iterator_cleanup(True)
    # The bound keeps the walk away from deleted rows after it. No lower bound is set: rocksdict 0.3
    # hands it to RocksDB as an upper bound.
    if start < end and not reverse:
        options.set_iterate_upper_bound(end)
    return _walk(family.iter(options), name, start, end, rows_max, bytes_max, reverse, resolve)


def _walk(
    iterator: rocksdict.RdictIter,
    name: str,
    start: bytes,
    end: bytes,
    rows_max: int,
    bytes_max: int | None,
    reverse: bool,
    resolve: Resolve | None,
) -> list[Row]:
    if rows_max <= 0:
        raise BrokenInvariant(f"rows_max is {rows_max}")
    rows: list[Row] = []
    if start >= end:
        return rows
    try:
        _gather(iterator, rows, start, end, rows_max, bytes_max, reverse, resolve)
    except Exception as error:
        raise RowsUnreadable(str(error), family=name, rows=rows) from error
    return rows


def _gather(
    iterator: rocksdict.RdictIter,
    rows: list[Row],
    start: bytes,
    end: bytes,
    rows_max: int,
    bytes_max: int | None,
    reverse: bool,
    resolve: Resolve | None,
) -> None:
    if reverse:
        iterator.seek_for_prev(end)
        if iterator.valid() and iterator.key() == end:
            iterator.prev()
    else:
        iterator.seek(start)
    valid, key_of, value_of = iterator.valid, iterator.key, iterator.value
    step = iterator.prev if reverse else iterator.next
    byte_count = 0
    while valid():
        key = key_of()
        if key < start or key >= end:
            break
        value = value_of()
        if resolve is not None and value.startswith(MARKED):
            value = resolve(value)
        rows.append((key, value))
        if len(rows) == rows_max:
            return
        if bytes_max is not None:
            byte_count += len(key) + len(value)
            if byte_count >= bytes_max:
                return
        step()
    # An iterator that met an error ends early: without this, rows would go missing.
    iterator.status()


class RocksSnapshot:
    """A frozen view of every family. It ends with its store.

    Args:
        check: raises StoreFailed when the store has ended.
        resolvers: of families whose values may lie in files of their own.
    """

    def __init__(
        self,
        views: dict[str, rocksdict.RdictIter],
        check: Callable[[], None],
        resolvers: Mapping[str, Resolve],
    ) -> None:
        self._check = check
        self._resolvers = resolvers
        self._views: dict[str, rocksdict.RdictIter] | None = views

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        rows = await self.scan(family, key, key + b"\x00", rows_max=1)
        return rows[0][1] if rows else None

    async def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        rows_max: int,
        bytes_max: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Return the rows of a range; see `Reader.scan`."""
        self._check()
        if self._views is None:
            raise StoreFailed("the snapshot is closed")
        return _walk(
            self._views[family],
            family,
            start,
            end,
            rows_max,
            bytes_max,
            reverse,
            self._resolvers.get(family),
        )

    async def close(self) -> None:
        """Release the view. Repeating it is harmless."""
        self.release()

    def release(self) -> None:
        """Release the view at once. Repeating it is harmless."""
        self._views = None
