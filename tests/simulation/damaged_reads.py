"""A disk that has damaged rows: they do not come, or come back cut, or with a flipped bit.

What was there is still known to whoever judges: reads of it say DataLoss, or give the right bytes
(which lay in memory yet), and nothing else is missing. See also slow_reads.py, whose reads come
late but whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from magnetar_broker import keys
from magnetar_broker.log.entries import DATA, DataEntry, MarkerEntry, parse_entry
from magnetar_core import batch as columnar
from magnetar_core.ids import TxnID
from magnetar_core.wire import record_pb2, topic_pb2
from magnetar_storage.memory.engine import MemoryDisk
from magnetar_storage.store import end_of_prefix

Row = tuple[str, bytes]

UNREADABLE, CUT, FLIPPED = "unreadable", "cut", "flipped"
WAYS = (UNREADABLE, CUT, FLIPPED)
# What a flipped bit changes without anybody noticing lies here, in an entry: its append time.
_UNCHECKED = range(5, 13)


class Stored(NamedTuple):
    """A message where it lies."""

    value: bytes
    txn_id: TxnID | None
    is_damaged: bool


class Damage:
    """Which rows of one disk are damaged."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        # What somebody will put back a copy of.
        self._passing: set[Row] = set()

    def strike(
        self,
        random: Random,
        families: tuple[str, ...],
        *,
        count: int,
        way: str,
        prefix: bytes = b"",
    ) -> list[Row]:
        """Damage so many rows of what is durable, of those whose keys begin in this way."""
        disk = self._disk
        unsynced = {(family, key) for undo in disk._undo for family, key, _ in undo}
        rows = [
            (family, key)
            for family in families
            for key, _ in _rows(disk, family, prefix)
            if (family, key) not in unsynced and not self._is_damaged((family, key))
        ]
        struck = random.sample(rows, min(count, len(rows)))
        for row in struck:
            self._harm(random, row, way)
        return struck

    def strike_for_now(self, random: Random, families: tuple[str, ...], *, count: int) -> list[Row]:
        """As strike(), with rows that do not come until repair()."""
        struck = self.strike(random, families, count=count, way=UNREADABLE)
        self._passing.update(struck)
        return struck

    def repair(self) -> None:
        """Somebody has put back what was struck for now."""
        self._disk.unreadable -= self._passing
        self._passing.clear()

    def repair_all(self) -> None:
        """Somebody has put back everything; what was given up stays given up."""
        self._disk.unreadable.clear()
        self._disk.torn.clear()
        self._passing.clear()

    def prefix_of(self, topic: str, partition: int) -> bytes | None:
        """What the keys of a partition's rows begin with; None: there is no such topic."""
        for key, data in _rows(self._disk, keys.TOPICS, b""):
            if topic_pb2.TopicRecord.FromString(data).topic == topic:
                return keys.partition(int.from_bytes(key, "big"), partition)
        return None

    def stored(self, topic_id: int, partition: int) -> dict[int, Stored]:
        """What a partition's log holds in truth, by offset."""
        prefix = keys.partition(topic_id, partition)
        found: dict[int, Stored] = {}
        for key, data in _rows(self._disk, keys.LOG, prefix):
            entry = parse_entry(keys.last_u64(key), data)
            is_damaged = self._is_damaged((keys.LOG, key))
            if isinstance(entry, DataEntry):
                messages = [
                    Stored(value, None, is_damaged)
                    for value in columnar.decode(entry.batch).values()
                ]
            else:
                messages = list(self._messages_of(prefix, entry, is_damaged))
            found.update((entry.entry_id + place, one) for place, one in enumerate(messages))
        return found

    def damaged_offsets(self, topic_id: int, partition: int) -> dict[int, Stored]:
        """Those of them that are damaged."""
        stored = self.stored(topic_id, partition)
        return {offset: one for offset, one in stored.items() if one.is_damaged}

    def given_up(self, topic_id: int, partition: int) -> set[int]:
        """The offsets that are stored as given up."""
        rows = _rows(self._disk, keys.PARTITIONS, keys.partition(topic_id, partition))
        return {
            offset
            for _, data in rows
            for one in record_pb2.PartitionRow.FromString(data).skipped
            for offset in range(one.first, one.last + 1)
        }

    def _messages_of(
        self, prefix: bytes, marker: MarkerEntry, is_damaged: bool
    ) -> Iterator[Stored]:
        for writer in marker.writers:
            left = writer.count
            start = keys.txnlog(prefix, marker.txn_id, writer.ordinal, 0)
            behind = keys.txnlog(prefix, marker.txn_id, writer.ordinal, writer.count)
            for key, data in _rows(self._disk, keys.TXNLOG, start[:-8]):
                if key >= behind:
                    break
                row_is_damaged = is_damaged or self._is_damaged((keys.TXNLOG, key))
                for value in columnar.decode(data).values()[:left]:
                    left -= 1
                    yield Stored(value, marker.txn_id, row_is_damaged)

    def _is_damaged(self, row: Row) -> bool:
        return row in self._disk.unreadable or row in self._disk.torn

    def _harm(self, random: Random, row: Row, way: str) -> None:
        family, key = row
        value = self._disk._tables[family].values[key]
        is_batch = family == keys.TXNLOG or (family == keys.LOG and value[0] == DATA)
        # Of the rows in question, batches alone have a checksum that would tell a flipped bit.
        if way == UNREADABLE or (way == FLIPPED and not is_batch):
            self._disk.unreadable.add(row)
            return
        at = random.randrange(len(value))
        if way == FLIPPED and family == keys.LOG and at in _UNCHECKED:
            at = _UNCHECKED.stop
        flipped = bytes((value[at] ^ (1 << random.randrange(8)),))
        self._disk.torn[row] = value[:at] + (flipped + value[at + 1 :] if way == FLIPPED else b"")


def _rows(disk: MemoryDisk, family: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Rows as they were written, damaged or not."""
    table = disk._tables.get(family)
    if table is None:
        return []
    end = end_of_prefix(prefix)
    return table.scan(prefix, end, rows_max=1 << 30, bytes_max=None, reverse=False)
