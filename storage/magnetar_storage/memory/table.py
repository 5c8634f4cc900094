"""Rows of a family in memory, ordered by key.

A sorted list of keys beside a dict: rows mostly arrive at the end, and up to some ten thousand rows
bisect into a list beats any tree that Python can offer.
"""

from __future__ import annotations

from bisect import bisect_left

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.store import behind_prefix


class Table:
    """Rows in memory. If `shared` is set, a snapshot uses the table: copy it before a change."""

    __slots__ = ("keys", "shared", "values")

    def __init__(
        self, keys: list[bytes] | None = None, values: dict[bytes, bytes] | None = None
    ) -> None:
        self.keys = keys if keys is not None else []
        self.values = values if values is not None else {}
        self.shared = False

    def copy(self) -> Table:
        """Return an independent copy."""
        return Table(self.keys.copy(), self.values.copy())

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set a row, and return the value that was there before, if any."""
        previous = self.values.get(key)
        if previous is None:
            if not self.keys or self.keys[-1] < key:
                self.keys.append(key)
            else:
                self.keys.insert(bisect_left(self.keys, key), key)
        self.values[key] = value
        return previous

    def delete(self, key: bytes) -> bytes | None:
        """Delete a row, and return the value that was there, if any."""
        previous = self.values.pop(key, None)
        if previous is not None:
            del self.keys[bisect_left(self.keys, key)]
        return previous

    def delete_range(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Delete the rows of a range, and return them."""
        first, last = bisect_left(self.keys, start), bisect_left(self.keys, end)
        removed = [(key, self.values.pop(key)) for key in self.keys[first:last]]
        del self.keys[first:last]
        return removed

    def scan(
        self, start: bytes, end: bytes, *, rows_max: int, bytes_max: int | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return the rows of a range; see `Reader.scan`."""
        if rows_max <= 0:
            raise BrokenInvariant(f"rows_max is {rows_max}")
        first, last = bisect_left(self.keys, start), bisect_left(self.keys, end)
        if reverse:
            keys = self.keys[max(first, last - rows_max) : last]
            keys.reverse()
        else:
            keys = self.keys[first : min(last, first + rows_max)]
        values = self.values
        if bytes_max is None:
            return [(key, values[key]) for key in keys]
        rows: list[tuple[bytes, bytes]] = []
        byte_count = 0
        for key in keys:
            value = values[key]
            rows.append((key, value))
            byte_count += len(key) + len(value)
            if byte_count >= bytes_max:
                break
        return rows

    def prefixes(
        self, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        if count_max <= 0:
            raise BrokenInvariant(f"count_max is {count_max}")
        found: list[bytes] = []
        while len(found) < count_max:
            at = bisect_left(self.keys, start)
            if at == len(self.keys) or self.keys[at] >= end:
                return found, None
            found.append(self.keys[at][:length])
            start = behind_prefix(found[-1], length)
        return found, start if start < end else None

    def check(self) -> None:
        """Check the table's invariant."""
        assert self.keys == sorted(self.values)
