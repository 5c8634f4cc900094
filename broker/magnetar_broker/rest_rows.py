"""Rows of a broker at rest, as the checks of a data directory read them: page by page.

A page with a row that cannot be read ends its range: what lies behind it is not looked at, and no
check that needs the whole range is made.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from magnetar_broker import keys
from magnetar_broker.watermark import Watermark, Watermarks
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2
from magnetar_storage.findings import Findings
from magnetar_storage.store import KEY_END, Reader, RowsUnreadable, end_of_prefix

PAGE_ROWS = 4_096
PAGE_BYTES = 4 << 20

Row = tuple[bytes, bytes]
Place = tuple[int, int]


class RestRows:
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
        self.unread: set[tuple[str, bytes]] = set()

    async def rows(
        self, family: str, start: bytes = b"", end: bytes = KEY_END
    ) -> AsyncIterator[Row]:
        """Yield the rows of a range, up to the first one that cannot be read."""
        at = start
        while True:
            try:
                page = await self._reader.scan(
                    family, at, end, rows_max=PAGE_ROWS, bytes_max=PAGE_BYTES
                )
            except KeyError:
                return
            except RowsUnreadable as error:
                self.unread.add((family, start))
                self._findings.damage(
                    "unreadable",
                    f"{family} from key {(error.rows[-1][0] if error.rows else at).hex()} on",
                    f"the engine cannot read a row, what lies behind it was not checked: {error}",
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

    def is_whole(self, family: str, start: bytes = b"") -> bool:
        """Return whether everything from this start on was readable."""
        return (family, start) not in self.unread


@dataclass(slots=True)
class IndexEntry:
    """A transaction at a participant, as its index rows say."""

    row: records.TransactionIndexRow | None = None
    # Writer id and next index, by ordinal.
    writers: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it is OPEN here."""
        return self.row is not None and self.row.status == common.OPEN


Index = dict[TxnID, IndexEntry]


@dataclass(slots=True)
class RestBroker:
    """What the small families of a broker's store say; its logs are read later."""

    partitions: dict[Place, records.PartitionRow] = field(default_factory=dict)
    topics: dict[int, topic_pb2.TopicRecord] = field(default_factory=dict)
    subscriptions: dict[tuple[int, int, int], records.SubscriptionRecord] = field(
        default_factory=dict
    )
    # By topic, partition and subscription; 0: the partition's own.
    indexes: dict[tuple[int, int, int], Index] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)
    incarnations: dict[int, int] = field(default_factory=dict)
    next_subscription_id: int | None = None

    def index(self, topic_id: int, number: int, subscription_id: int = 0) -> Index:
        """Return the index of a participant."""
        return self.indexes.get((topic_id, number, subscription_id), {})

    def name(self, place: Place) -> str:
        """Return what people call a partition."""
        topic = self.topics.get(place[0])
        return f"{topic.topic if topic is not None else f'topic {place[0]}'}/{place[1]}"

    def must_be_indexed(self, txn_id: TxnID) -> bool:
        """Return whether the index cannot have forgotten an ended transaction.

        Rows of earlier incarnations may have been forgotten under earlier watermarks.
        """
        watermark = self.watermarks.find(txn_id.tcid)
        if watermark is None or txn_id.incarnation > watermark.incarnation:
            return True
        return txn_id.incarnation == watermark.incarnation and not watermark.covers(txn_id)


async def read_broker(rows: RestRows, findings: Findings) -> RestBroker:
    """Read the small families; rows that cannot be parsed are damage."""
    found = RestBroker()
    async for key, value in rows.rows(keys.META):
        with _parsing(findings, keys.META, key):
            _take_meta(found, key, value)
    async for key, value in rows.rows(keys.TOPICS):
        with _parsing(findings, keys.TOPICS, key):
            found.topics[keys.last_u64(key)] = topic_pb2.TopicRecord.FromString(value)
    async for key, value in rows.rows(keys.PARTITIONS):
        with _parsing(findings, keys.PARTITIONS, key):
            found.partitions[place_of(key)] = records.PartitionRow.FromString(value)
    async for key, value in rows.rows(keys.SUBSCRIPTIONS):
        with _parsing(findings, keys.SUBSCRIPTIONS, key):
            record = records.SubscriptionRecord.FromString(value)
            found.subscriptions[*place_of(key), keys.last_u64(key)] = record
    async for key, value in rows.rows(keys.TXNINDEX):
        with _parsing(findings, keys.TXNINDEX, key):
            txn_id, topic_id, number, subscription_id, ordinal = keys.txnindex_place(key)
            index = found.indexes.setdefault((topic_id, number, subscription_id), {})
            entry = index.setdefault(txn_id, IndexEntry())
            if ordinal is None:
                entry.row = records.TransactionIndexRow.FromString(value)
            else:
                writer = records.TransactionWriterRow.FromString(value)
                entry.writers[ordinal] = (writer.writer_id, writer.next_index)
    return found


def _take_meta(found: RestBroker, key: bytes, value: bytes) -> None:
    if key.startswith(keys.META_WATERMARK):
        row = records.WatermarkRow.FromString(value)
        found.watermarks.set(
            int.from_bytes(key[-2:], "big"),
            Watermark(
                row.incarnation,
                row.low_watermark,
                tuple((one.first, one.last) for one in row.live),
                row.next_counter if row.HasField("next_counter") else None,
                row.counter_bound if row.HasField("counter_bound") else None,
            ),
        )
    elif key.startswith(keys.META_INCARNATION):
        incarnation = records.IncarnationRow.FromString(value).incarnation
        found.incarnations[int.from_bytes(key[-2:], "big")] = incarnation
    elif key == keys.META_NEXT_SUBSCRIPTION_ID:
        found.next_subscription_id = keys.read_u64(value)


@contextmanager
def _parsing(findings: Findings, family: str, key: bytes) -> Iterator[None]:
    """Turn a row that cannot be parsed into a finding."""
    try:
        yield
    except (DecodeError, ValueError, LookupError, struct.error) as error:
        findings.damage("unparsed", f"{family} {key.hex()}", f"the row is damaged: {error}")


def place_of(key: bytes) -> Place:
    """Return topic id and partition of a key that begins with them."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:12], "big")
