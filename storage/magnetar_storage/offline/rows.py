"""Rows of a store at rest, as checks read them: page by page, noting what cannot be read.

A page with a row that cannot be read ends its range: the rows after it are not checked, and no
check that needs the whole range is made.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_storage.offline.findings import Findings
from magnetar_storage.store import KEY_END, Reader, RowsUnreadable, end_of_prefix

_PAGE_ROWS: Final = 4_096
_PAGE_BYTES: Final = 4 << 20

Row = tuple[bytes, bytes]


class OfflineRows:
    """Reads a store, and notes what cannot be read.

    Args:
        passed: called with the number of rows of each page.
    """

    def __init__(
        self, reader: Reader, findings: Findings, passed: Callable[[int], object] = lambda _: None
    ) -> None:
        self._reader = reader
        self._findings = findings
        self._passed = passed
        # Ranges that were not read to their ends: family and start.
        self._unread: set[tuple[str, bytes]] = set()
        self._has_unparsed = False

    @property
    def is_complete(self) -> bool:
        """Whether everything so far could be read and parsed."""
        return not self._unread and not self._has_unparsed

    def is_whole(self, family: str, start: bytes = b"") -> bool:
        """Return whether everything from this start on was readable."""
        return (family, start) not in self._unread

    async def rows(
        self, family: str, start: bytes = b"", end: bytes = KEY_END
    ) -> AsyncIterator[Row]:
        """Yield the rows of a range, up to the first one that cannot be read."""
        at = start
        while True:
            try:
                page = await self._reader.scan(
                    family, at, end, rows_max=_PAGE_ROWS, bytes_max=_PAGE_BYTES
                )
            except KeyError:
                return
            except RowsUnreadable as error:
                self._unread.add((family, start))
                self._findings.damage(
                    "unreadable",
                    f"{family} from key {(error.rows[-1][0] if error.rows else at).hex()} on",
                    f"the engine cannot read a row, the rows after it were not checked: {error}",
                )
                for row in error.rows:
                    yield row
                return
            if not page:
                return
            self._passed(len(page))
            for row in page:
                yield row
            at = page[-1][0] + b"\x00"

    async def of_prefix(self, family: str, prefix: bytes) -> AsyncIterator[Row]:
        """Yield the rows whose keys begin with a prefix."""
        async for row in self.rows(family, prefix, end_of_prefix(prefix)):
            yield row

    @contextmanager
    def parsing(self, family: str, key: bytes) -> Iterator[None]:
        """Turn the error of a row that cannot be parsed into a finding."""
        try:
            yield
        except (DecodeError, ValueError, LookupError, struct.error) as error:
            self._has_unparsed = True
            self._findings.damage("unparsed", f"{family} {key!r}", f"the row is damaged: {error}")
