"""Small families of a broker's store at rest: everything but logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_broker import keys
from magnetar_broker.transactions import watermark_rows
from magnetar_broker.transactions.index_rows import EndedRow, OpenRow, WriterRow, parse
from magnetar_broker.transactions.transaction_index import Outcome
from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2
from magnetar_storage.offline.rows import OfflineRows

Place = tuple[int, int]


@dataclass(slots=True)
class IndexEntry:
    """A transaction at a participant, as its index rows say."""

    row: OpenRow | EndedRow | None = None
    # Writer id and next index, by ordinal.
    writers: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it is OPEN here."""
        return isinstance(self.row, OpenRow)

    @property
    def status(self) -> common.TxnStatus:
        """Its status here; its row is known."""
        if not isinstance(self.row, EndedRow):
            return common.OPEN
        is_committed = self.row.ended.outcome is Outcome.COMMITTED
        return common.COMMITTED if is_committed else common.ABORTED

    @property
    def marker_entry_id(self) -> int | None:
        """Offset of its marker; None: it has none, and kept nothing here."""
        return self.row.marker_entry_id if isinstance(self.row, EndedRow) else None


Index = dict[TxnID, IndexEntry]


@dataclass(slots=True)
class OfflineBroker:
    """Content of the small families of a broker's store; its logs are read later."""

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
        """Return the name of a partition for people."""
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


async def read_broker(rows: OfflineRows) -> OfflineBroker:
    """Read the small families; rows that cannot be parsed are damage."""
    found = OfflineBroker()
    async for key, value in rows.rows(keys.META):
        with rows.parsing(keys.META, key):
            _take_meta(found, key, value)
    async for key, value in rows.rows(keys.TOPICS):
        with rows.parsing(keys.TOPICS, key):
            found.topics[keys.last_u64(key)] = topic_pb2.TopicRecord.FromString(value)
    async for key, value in rows.rows(keys.PARTITIONS):
        with rows.parsing(keys.PARTITIONS, key):
            found.partitions[place_of(key)] = records.PartitionRow.FromString(value)
    async for key, value in rows.rows(keys.SUBSCRIPTIONS):
        with rows.parsing(keys.SUBSCRIPTIONS, key):
            record = records.SubscriptionRecord.FromString(value)
            found.subscriptions[*place_of(key), keys.last_u64(key)] = record
    async for key, value in rows.rows(keys.TXNINDEX):
        with rows.parsing(keys.TXNINDEX, key):
            txn_id, topic_id, number, subscription_id, ordinal = keys.txnindex_place(key)
            index = found.indexes.setdefault((topic_id, number, subscription_id), {})
            entry = index.setdefault(txn_id, IndexEntry())
            row = parse(value)
            if isinstance(row, WriterRow) is (ordinal is None):
                raise ValueError("a row of a transaction has the key of a writer, or the reverse")
            if isinstance(row, WriterRow):
                assert ordinal is not None
                entry.writers[ordinal] = row[:2]
                continue
            entry.row = row
            if isinstance(row, OpenRow):
                entry.writers[0] = row.first_writer[:2]
    return found


def _take_meta(found: OfflineBroker, key: bytes, value: bytes) -> None:
    if key.startswith(keys.META_WATERMARK):
        found.watermarks.set(int.from_bytes(key[-2:], "big"), watermark_rows.decode(value)[0])
    elif key.startswith(keys.META_FORMER_WATERMARK):
        former, _ = watermark_rows.decode(value)
        found.watermarks.keep_former(keys.former_watermark_tcid(key), former)
    elif key.startswith(keys.META_INCARNATION):
        incarnation = records.IncarnationRow.FromString(value).incarnation
        found.incarnations[int.from_bytes(key[-2:], "big")] = incarnation
    elif key == keys.META_NEXT_SUBSCRIPTION_ID:
        found.next_subscription_id = keys.read_u64(value)


def place_of(key: bytes) -> Place:
    """Return topic id and partition of a key that begins with them."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:12], "big")
