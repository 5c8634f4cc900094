"""Large values of a RocksDB store: in files of values, with pointers in their rows.

RocksDB writes each byte of a row to its log, and again to a table, and computes a checksum each
time, and another when it reads. A large value is written once instead, and read with one call.
Everything here happens on the event loop's thread, within calls of the store, so rows do not change
meanwhile.

A batch's values are with the operating system before its rows are, and synced before its rows are.
They may be appended while the batch still grows and the one before is synced (`append_ahead`). The
rest of an unsynced batch after a loss of power is cut off at the next start (`directory_check`).
Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import rocksdict

from magnetar_storage.data_dir.store_files import VALUES, numbered
from magnetar_storage.data_dir.value_files import (
    HeadDamaged,
    Place,
    Record,
    ValueFiles,
    ValueUnreadable,
)
from magnetar_storage.data_dir.value_pointer import (
    MARKED,
    Pointer,
    pointer_of,
    row_of_value,
)
from magnetar_storage.rocksdb.reads import scan_rows
from magnetar_storage.rocksdb.value_rounds import ValueRounds, is_to_move
from magnetar_storage.store import (
    KEY_END,
    PUT,
    Operation,
    RowsUnreadable,
    StoreDamaged,
    end_of_prefix,
)

log = logging.getLogger(__name__)

# Smaller values stay in their rows.
VALUE_BYTES_MIN: Final = 4 << 10
# Rows that a look at all rows reads together: few, since small values are rows themselves.
ROWS_AT_ONCE: Final = 200
ROWS_BYTES_AT_ONCE: Final = 128 << 10
# Values that a write may move beside its own.
MOVED_BYTES_AT_ONCE: Final = 1 << 20

# Rows of RocksDB's default family: a file's number, and its size when it is whole, else 0.
_FILE_KEY: Final = b"values/"
_NUMBER = struct.Struct(">Q")
# And the names of the families in which rows begin with MARKED.
_FAMILY_KEY: Final = b"values-of/"


class _Live(NamedTuple):
    """A value that a row pointed to when it was looked at."""

    place: Place
    row: bytes


class Unsynced(NamedTuple):
    """Work of a sync.

    Attributes:
        files: to sync; see `ValueFiles.unsynced`.
        garbage: files to remove when the rows are synced.
    """

    files: Mapping[int, tuple[int, int]]
    garbage: Sequence[int]


class ValueLog:
    """The large values of an open store.

    Args:
        files: the files of the store.
        database: the store; its default family lists the files.
        families: those whose large values go to files.
        listed: families of which the store says already that they have such values.
    """

    def __init__(
        self,
        files: ValueFiles,
        database: rocksdict.Rdict,
        families: Mapping[str, rocksdict.Rdict],
        *,
        listed: Collection[str],
    ) -> None:
        self._files = files
        self._families = dict(families)
        self._handles = {name: database.get_column_family_handle(name) for name in families}
        self._unlisted = sorted(set(families) - set(listed))
        # Their rows may point to values, and are out of reach.
        self._not_open = sorted(set(listed) - set(families))
        self._rounds = ValueRounds()
        # Of the file that is looked at: a value to which a row points, or None for another place.
        self._looks: Iterator[_Live | None] = iter(())
        # What was told of files that cannot be looked at as usual: it is told once.
        self._complaints: set[str] = set()
        self._live: list[_Live] = []
        self._live_bytes = 0
        self._is_moving = False
        # Of the batch that is written next: its operations, how many of them were looked at, the
        # places of those on families with large values, and the values that were appended, by the
        # places of their operations.
        self._ahead_of: Sequence[Operation] | None = None
        self._ahead_count = 0
        self._places: list[int] = []
        self._ahead: dict[int, Pointer] = {}
        # Rows about files, for the next batch.
        self._file_rows: list[tuple[bytes, bytes]] = []
        self._end = files.end
        # No row points to them, as soon as the last write is synced.
        self._garbage: list[int] = []

    @property
    def end(self) -> tuple[int, int]:
        """The number and the size of the file that grew when a batch was written last.

        Zeros: there is none. Values that were appended ahead do not count: their file may not be
            listed.
        """
        return self._end

    def write(
        self, raw: rocksdict.WriteBatch, operations: Sequence[Operation], now_seconds: float
    ) -> Sequence[Operation]:
        """Append the large values of a batch, and return it with pointers in their place.

        Args:
            raw: gets the rows that belong to the files themselves, ahead of the batch's.
        Raises:
            OSError: the disk did not take a value.
        """
        for name in self._unlisted:
            raw.put(_FAMILY_KEY + name.encode(), b"")
        self._unlisted = []
        # Ahead of a look that may give up a file which became whole ahead of this write: of the
        # changes of its row, the last one counts.
        self._put_file_rows(raw)
        self._look_at_garbage(raw, now_seconds)
        changed = list(operations)
        self.append_ahead(operations)
        ahead, self._ahead, self._ahead_of = self._ahead, {}, None
        for place in self._places:
            kind, family, key, value = operations[place]
            if kind != PUT:
                self._rounds.note_deleted()
            elif place in ahead:
                changed[place] = (kind, family, key, ahead[place].to_bytes())
            elif value.startswith(MARKED):
                changed[place] = (kind, family, key, row_of_value(value))
        self._put_file_rows(raw)
        self._end = self._files.end
        return changed

    def append_ahead(self, operations: Sequence[Operation]) -> None:
        """Append the large values that there are of the batch that is written next.

        If it never is, nothing points to them, as if the process had ended.

        Raises:
            OSError: the disk did not take a value.
        """
        if self._ahead_of is not operations:
            self._ahead_of, self._ahead_count = operations, 0
            self._places, self._ahead = [], {}
        families, start = self._families, self._ahead_count
        added = [place for place, one in enumerate(operations[start:], start) if one[1] in families]
        self._places += added
        places = [
            place
            for place in added
            if len(operations[place][3]) >= VALUE_BYTES_MIN and operations[place][0] == PUT
        ]
        if places:
            records = [Record(*operations[place][1:]) for place in places]
            self._ahead.update(zip(places, self._append(records), strict=True))
        self._ahead_count = len(operations)

    def before_sync(self, *, takes_garbage: bool) -> Unsynced:
        """Return the work of a sync that begins now.

        Args:
            takes_garbage: whether files without rows are to be removed. That is possible after a
                sync of the rows, while no view of earlier rows is read.
        """
        garbage: list[int] = []
        if takes_garbage:
            garbage, self._garbage = self._garbage, []
            self._files.forget(garbage)
        return Unsynced(self._files.unsynced(), garbage)

    def sync(self, unsynced: Unsynced) -> None:
        """Sync the values, ahead of the rows. For a worker thread.

        Raises:
            OSError: something may be lost.
        """
        self._files.sync(unsynced.files)

    def unlink(self, unsynced: Unsynced) -> None:
        """Remove files, behind a sync of the rows. For a worker thread."""
        self._files.unlink(unsynced.garbage)

    def after_sync(self, unsynced: Unsynced) -> None:
        """Note that a sync has ended."""
        self._files.synced(unsynced.files)

    def not_synced(self, unsynced: Unsynced) -> None:
        """Note that a sync did not take place, and will be tried again."""
        self._garbage = [*unsynced.garbage, *self._garbage]

    def close(self) -> None:
        """Close the files, and drop the references to the store."""
        self._families.clear()
        self._handles.clear()
        self._files.close()

    def _append(self, records: Sequence[Record]) -> list[Pointer]:
        before = self._files.begin_if_full()
        if before is not None:
            self._file_rows.append((file_key(self._files.active), _NUMBER.pack(0)))
            if before:
                self._file_rows.append((file_key(before), _NUMBER.pack(self._files.sizes[before])))
        return self._files.append(records)

    def _put_file_rows(self, raw: rocksdict.WriteBatch) -> None:
        """List files that were begun or became whole since the last batch."""
        for file_row in self._file_rows:
            raw.put(*file_row)
        self._file_rows.clear()

    def _look_at_garbage(self, raw: rocksdict.WriteBatch, now_seconds: float) -> None:
        """Go on with the round of looks at files, a little."""
        values_max = self._rounds.values_due(now_seconds)
        if not values_max:
            return
        if self._rounds.file is None:
            files = self._files
            # Rows that are about to be written will point to what was appended ahead.
            kept = {files.active, *self._garbage, *(one.file for one in self._ahead.values())}
            file = self._rounds.begin_file(
                now_seconds, (one for one in files.sizes if one not in kept)
            )
            if file is None:
                return
            self._begin_looks(self._by_heads(file))
        try:
            is_done = self._move(raw) if self._is_moving else self._look(raw, values_max)
        except OSError:
            # A disk that does not take a moved value is like one that does not take the batch's
            # own: the file that grows may have begun, and not be listed.
            raise
        except HeadDamaged as error:
            self._complain(f"{error}; all rows are asked which of them point to this file")
            assert self._rounds.file is not None
            self._begin_looks(self._by_rows(self._rounds.file))
            is_done = False
        except Exception as error:
            # Nothing is known about the rest of it, so it stays.
            self._complain(f"values cannot be looked at for garbage: {error}")
            is_done = True
        if is_done:
            self._rounds.end_file(now_seconds)

    def _complain(self, complaint: str) -> None:
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.error("%s", complaint)

    def _begin_looks(self, looks: Iterator[_Live | None]) -> None:
        self._looks = looks
        self._live = []
        self._live_bytes = 0
        self._is_moving = False

    def _by_heads(self, file: int) -> Iterator[_Live | None]:
        """Look at each value of a file, and get its row.

        Raises:
            HeadDamaged: where the next value begins is not known.
        """
        for place in self._files.places(file):
            row = self._row_of(place, file)
            yield _Live(place, row) if row is not None else None

    def _by_rows(self, file: int) -> Iterator[_Live | None]:
        """Look at all rows for those that point to a file.

        Rows change meanwhile, but no row begins to point to a file that does not grow.

        Raises:
            ValueUnreadable: rows of a family that is not open may point there.
        """
        if self._not_open:
            raise ValueUnreadable(f"rows of {', '.join(self._not_open)} are not open")
        for family, rows in self._families.items():
            start = b""
            while page := scan_rows(
                rows, family, start, KEY_END, ROWS_AT_ONCE, ROWS_BYTES_AT_ONCE, reverse=False
            ):
                for key, row in page:
                    pointer = pointer_of(row)
                    if pointer is not None and pointer.file == file:
                        place = Place(family, key, pointer.position, pointer.length)
                        yield _Live(place, row)
                    else:
                        yield None
                start = page[-1][0] + b"\x00"

    def _look(self, raw: rocksdict.WriteBatch, values_max: int) -> bool:
        """Look at some values of the file; return whether nothing more is to be done with it."""
        file = self._rounds.file
        assert file is not None
        looked_count = 0
        for live in itertools.islice(self._looks, values_max):
            looked_count += 1
            if live is not None:
                self._live.append(live)
                self._live_bytes += live.place.length
        if looked_count == values_max:
            return False
        if not self._live:
            self._give_up(raw, file)
            return True
        self._is_moving = is_to_move(self._live_bytes, self._files.sizes[file])
        return not self._is_moving

    def _move(self, raw: rocksdict.WriteBatch) -> bool:
        """Move some values of the file to its newest one; return whether all of them are moved."""
        file = self._rounds.file
        assert file is not None
        records: list[Record] = []
        moved_bytes = 0
        while self._live and moved_bytes < MOVED_BYTES_AT_ONCE:
            place, row = self._live.pop()
            # It may have been deleted since, or have another value.
            if self._families[place.family].get(place.key) == row:
                records.append(Record(place.family, place.key, self._files.resolve(row)))
                moved_bytes += place.length
        if records:
            pointers = self._append(records)
            for record, pointer in zip(records, pointers, strict=True):
                raw.put(record.key, pointer.to_bytes(), self._handles[record.family])
        if self._live:
            return False
        self._give_up(raw, file)
        return True

    def _row_of(self, place: Place, file: int) -> bytes | None:
        """Return the row that points to a value; None: none does.

        Raises:
            KeyError: the store was opened without the family.
        """
        row: bytes | None = self._families[place.family].get(place.key)
        pointer = pointer_of(row) if row is not None else None
        if pointer is None or (pointer.file, pointer.position) != (file, place.position):
            return None
        return row

    def _give_up(self, raw: rocksdict.WriteBatch, file: int) -> None:
        """Have a file removed to which no row points when this batch is written."""
        raw.delete(file_key(file))
        self._garbage.append(file)


def file_key(file: int) -> bytes:
    """Return the key under which a file is listed."""
    return _FILE_KEY + _NUMBER.pack(file)


def listed_files(database: rocksdict.Rdict) -> dict[int, int]:
    """Return the files that a store lists: sizes by number; 0 for the one that grows.

    Raises:
        StoreDamaged: the list cannot be read.
    """
    return {
        _NUMBER.unpack(key)[0]: _NUMBER.unpack(size)[0]
        for key, size in _rows_behind(database, _FILE_KEY)
    }


def families_with_values(database: rocksdict.Rdict) -> set[str]:
    """Return the names of the families in which rows may begin with MARKED.

    Raises:
        StoreDamaged: the list cannot be read.
    """
    return {key.decode() for key, _ in _rows_behind(database, _FAMILY_KEY)}


def _rows_behind(database: rocksdict.Rdict, prefix: bytes) -> list[tuple[bytes, bytes]]:
    try:
        rows = scan_rows(
            database, "default", prefix, end_of_prefix(prefix), 1 << 30, None, reverse=False
        )
    except RowsUnreadable as error:
        raise StoreDamaged(f"its list of files of values cannot be read: {error}") from error
    return [(key.removeprefix(prefix), value) for key, value in rows]


def list_found(directory: str, database: rocksdict.Rdict) -> None:
    """Have a store list the files that there are, and no others.

    For a person who accepted a loss: rows that point elsewhere are unreadable then. A file whose
    row was lost still has values of rows, if those are in tables; or else it is garbage, and is
    removed as such.
    """
    found = {number: path.stat().st_size for number, path in numbered(directory, VALUES)}
    listed = listed_files(database)
    for number in sorted(found.keys() | listed.keys()):
        size = found.get(number, 0)
        if not size:
            database.delete(file_key(number))
        elif listed.get(number) != 0 or number < max(found):
            # The newest one may go on growing. A whole one may have more than whole values.
            database.put(file_key(number), _NUMBER.pack(min(size, listed.get(number) or size)))
