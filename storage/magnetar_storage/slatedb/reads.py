"""Reads of SlateDB's rows. A failed read reports the rows that it read before; the store goes on.

While the object store does not answer, a read waits: SlateDB repeats its requests for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from slatedb import uniffi

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb.families import Family
from magnetar_storage.store import RowsUnreadable, StoreFailed, StoreFenced, behind_prefix

Row = tuple[bytes, bytes]

# Rows that cross the binding together, at first and at most; and their bytes, as far as the rows
# before them let one guess.
_ROWS_FIRST: Final = 16
_ROWS_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20
# A scan of more than this reads ahead, with several requests at once.
_LONG_ROWS_MIN: Final = 64
_LONG_BYTES_MIN: Final = 128 << 10
_AHEAD_BYTES: Final = 1 << 20
_AHEAD_REQUESTS: Final = 4

_FENCED: Final = "another process opened this store, which is its owner from now on"


def _plan(ahead_bytes: int, requests: int, *, reverse: bool) -> slate_binding.ScanPlan:
    order = uniffi.IterationOrder.DESCENDING if reverse else uniffi.IterationOrder.ASCENDING
    return slate_binding.ScanPlan(
        uniffi.ScanOptions(
            durability_filter=uniffi.DurabilityLevel.MEMORY,
            dirty=False,
            read_ahead_bytes=ahead_bytes,
            cache_blocks=True,
            max_fetch_tasks=requests,
            order=order,
        ),
        is_reverse=reverse,
    )


_SHORT: Final = {reverse: _plan(1, 1, reverse=reverse) for reverse in (False, True)}
_LONG: Final = {
    reverse: _plan(_AHEAD_BYTES, _AHEAD_REQUESTS, reverse=reverse) for reverse in (False, True)
}


def text_of(error: BaseException) -> str:
    """Return the text of an error of SlateDB."""
    return str(getattr(error, "message", error))


def is_closed(error: BaseException) -> bool:
    """Return whether SlateDB is at its end, so that nothing can be read or written."""
    return isinstance(error, uniffi.Error.Closed)


def end_of(where: str, reason: object, text: str) -> StoreFailed:
    """Return the error of a database that has ended.

    Args:
        where: the store's address.
        reason: the binding's CloseReason.
        text: what SlateDB says about it.
    """
    if reason is uniffi.CloseReason.FENCED:
        return StoreFenced(f"{where}: {_FENCED}")
    return StoreFailed(f"{where}: {text}")


class SlateReads:
    """Reads of the database, of a snapshot, or of a reader of it.

    Args:
        reader: the binding's database, snapshot or reader.
        families: where the rows of each family lie.
        check: raises StoreFailed if the store has ended.
        ended: returns the StoreFailed that says why SlateDB has ended.
    """

    def __init__(
        self,
        reader: Any,
        families: dict[str, Family],
        check: Callable[[], None],
        ended: Callable[[BaseException], StoreFailed],
    ) -> None:
        self._reader = reader
        self._families = families
        self._check = check
        self._ended = ended

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        self._check()
        place = self._families[family]
        with self._failures(family, []):
            return await slate_binding.get(self._reader, place.rows + key)

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
        if rows_max <= 0:
            raise BrokenInvariant(f"rows_max is {rows_max}")
        prefix = self._families[family].rows
        rows: list[Row] = []
        if start >= end:
            return rows
        is_long = rows_max >= _LONG_ROWS_MIN and (bytes_max is None or bytes_max >= _LONG_BYTES_MIN)
        plan = (_LONG if is_long else _SHORT)[reverse]
        byte_count = 0
        with self._failures(family, rows):
            async for key, value in self._walk(
                prefix + start, prefix + end, plan, rows_max, bytes_max
            ):
                rows.append((key[1:], value))
                byte_count += len(key) - 1 + len(value)
                if bytes_max is not None and byte_count >= bytes_max:
                    break
        return rows

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        self._check()
        if count_max <= 0:
            raise BrokenInvariant(f"count_max is {count_max}")
        place = self._families[family].listed
        found: list[bytes] = []
        at = start
        with self._failures(family, []):
            if start >= end:
                return found, None
            iterator = await slate_binding.scan(
                self._reader, place + start, place + end, _SHORT[False]
            )
            while rows := await slate_binding.next_rows(iterator, 1):
                found.append(rows[0][0][1 : 1 + length])
                at = behind_prefix(found[-1], length)
                if at >= end:
                    return found, None
                if len(found) == count_max:
                    return found, at
                await slate_binding.seek(iterator, place + at)
        return found, None

    async def keys(self, family: str, start: bytes, end: bytes) -> AsyncIterator[bytes]:
        """Walk over the keys of a range. Where a family has rows for them, no value is read."""
        place = self._families[family].listed
        with self._failures(family, []):
            async for key, _ in self._walk(place + start, place + end, _LONG[False], None, None):
                yield key[1:]

    async def _walk(
        self,
        start: bytes,
        end: bytes,
        plan: slate_binding.ScanPlan,
        rows_max: int | None,
        bytes_max: int | None,
    ) -> AsyncIterator[Row]:
        """Walk over rows, in parts that bound the memory."""
        iterator: Any = None
        row_count = byte_count = 0
        bytes_limit = _BYTES_MAX if bytes_max is None else min(bytes_max, _BYTES_MAX)
        part = _ROWS_FIRST
        one_by_one = False
        while True:
            if rows_max is not None:
                part = min(part, rows_max - row_count)
            try:
                if iterator is None:
                    iterator = await slate_binding.scan(self._reader, start, end, plan)
                rows = await slate_binding.next_rows(iterator, part)
            except uniffi.Error as error:
                if one_by_one or is_closed(error):
                    raise
                # A part fails as a whole, also for what was read ahead, and its first rows may be
                # readable.
                one_by_one, part, plan = True, 1, _SHORT[plan.is_reverse]
                iterator = None
                continue
            for row in rows:
                byte_count += len(row[0]) + len(row[1])
                yield row
            row_count += len(rows)
            if len(rows) < part or row_count == rows_max:
                return
            if plan.is_reverse:
                end = rows[-1][0]
            else:
                start = rows[-1][0] + b"\x00"
            if not one_by_one:
                mean_bytes = max(1, byte_count // row_count)
                part = max(1, min(_ROWS_MAX, bytes_limit // mean_bytes))

    @contextmanager
    def _failures(self, family: str, rows: list[Row]) -> Iterator[None]:
        """Turn errors of SlateDB into the store's; rows were read before."""
        try:
            yield
        except uniffi.Error as error:
            if is_closed(error):
                raise self._ended(error) from error
            raise RowsUnreadable(text_of(error), family=family, rows=rows) from error
