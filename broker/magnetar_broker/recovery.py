"""Recovery of a broker at its start. The time depends on what is open, not on the logs' length.

Topics, cursors and producers are read whole; of the transaction index only rows that watermarks do
not cover, by seeking to each gap; of the txnlog only the keys of open transactions.
Source: docs/architecture.md; PIP-31, Partition Loading.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager

from magnetar_broker import keys
from magnetar_broker.ages import Ages, Jump
from magnetar_broker.budgets.open_bytes import OpenBytes
from magnetar_broker.dispatch import pending_ack_rows
from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.groups.groups import Groups
from magnetar_broker.subscriptions.committing import Committing
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions import index_rows, watermark_rows
from magnetar_broker.transactions.producers import Producer
from magnetar_broker.transactions.transaction_index import TransactionIndex, Writer
from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.ids import COUNTER_MAX, INCARNATION_MAX, TCID_MAX, TxnID
from magnetar_core.membership.placement import serial_of
from magnetar_core.process.run_time import RunTime
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2
from magnetar_storage.store import KEY_END, RowsUnreadable, Store, end_of_prefix

PAGE_ROWS = 4_096
PAGE_BYTES = 4 * 1024 * 1024

Row = tuple[bytes, bytes]


async def pages(store: Store, family: str, start: bytes, end: bytes) -> AsyncIterator[list[Row]]:
    """Yield all rows of a range, page by page."""
    while True:
        rows = await store.scan(family, start, end, rows_max=PAGE_ROWS, bytes_max=PAGE_BYTES)
        if not rows:
            return
        yield rows
        start = rows[-1][0] + b"\x00"


class Recovery:
    """Recovery of a broker's memory from its store."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        groups: Groups,
        watermarks: Watermarks,
        open_bytes: OpenBytes,
        run_time: RunTime,
        ages: Ages,
    ) -> None:
        self._store = store
        self._groups = groups
        self._open_bytes = open_bytes
        self._run_time = run_time
        self._ages = ages
        self._topics = topics
        self._watermarks = watermarks
        self._orphans: dict[int, list[int]] = {}
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._subscriptions: dict[tuple[int, int, int], Subscription] = {}
        self._subscription_indexes: dict[tuple[int, int, int], TransactionIndex] = {}

    async def run(self) -> None:
        """Read the store.

        Raises:
            RowsUnreadable: rows cannot be read.
            StoreFailed: the store cannot go on.
        """
        await self._read_meta()
        await self._read_topics()
        await self._read_producers()
        await self._read_groups()
        await self._read_subscriptions()
        await self._read_index()
        await self._read_open_transactions()
        await self._read_pending_acks()

    async def _read_meta(self) -> None:
        next_topic_id = await self._store.get(keys.META, keys.META_NEXT_TOPIC_ID)
        if next_topic_id is not None:
            self._topics.next_serial = keys.read_u64(next_topic_id)
        next_subscription_id = await self._store.get(keys.META, keys.META_NEXT_SUBSCRIPTION_ID)
        if next_subscription_id is not None:
            self._topics.next_subscription_id = keys.read_u64(next_subscription_id)
        run_time_ms = await self._store.get(keys.META, keys.META_RUN_TIME)
        if run_time_ms is not None:
            self._run_time.resume(keys.read_u64(run_time_ms))
        jumps = await self._store.get(keys.META, keys.META_CLOCK_JUMPS)
        if jumps is not None:
            found = records.ClockJumpsRow.FromString(jumps).jumps
            self._ages.restore([Jump(one.before_ms, one.jump_ms) for one in found])
        start = keys.META_WATERMARK
        async for rows in pages(self._store, keys.META, start, end_of_prefix(start)):
            for key, value in rows:
                tcid = int.from_bytes(key[-2:], "big")
                watermark, self._orphans[tcid] = watermark_rows.decode(value)
                self._watermarks.set(tcid, watermark)
        start = keys.META_FORMER_WATERMARK
        async for rows in pages(self._store, keys.META, start, end_of_prefix(start)):
            for key, value in rows:
                former, _ = watermark_rows.decode(value)
                self._watermarks.keep_former(keys.former_watermark_tcid(key), former)

    async def _read_topics(self) -> None:
        partition_rows: dict[int, dict[int, records.PartitionRow]] = {}
        async for rows in pages(self._store, keys.PARTITIONS, b"", KEY_END):
            for key, value in rows:
                topic_id = int.from_bytes(key[:8], "big")
                number = int.from_bytes(key[8:12], "big")
                partition_rows.setdefault(topic_id, {})[number] = records.PartitionRow.FromString(
                    value
                )
        async for rows in pages(self._store, keys.TOPICS, b"", KEY_END):
            for _, value in rows:
                record = topic_pb2.TopicRecord.FromString(value)
                self._topics.next_serial = max(
                    self._topics.next_serial, serial_of(record.topic_id) + 1
                )
                topic = self._topics.restore(record, partition_rows.get(record.topic_id, {}))
                for partition in topic.partitions:
                    name = partition.name
                    self._partitions[name.topic_id, name.partition] = partition
                    self._ages.note_stamp(partition.log.last_append_time_ms)

    async def _read_producers(self) -> None:
        async for rows in pages(self._store, keys.PRODUCERS, b"", KEY_END):
            for key, value in rows:
                partition = self._partitions.get(_partition_of(key))
                if partition is None:
                    continue
                row = records.ProducerRow.FromString(value)
                # The run time is persisted less often than it is used.
                self._run_time.resume(row.last_run_time_ms)
                producer = Producer(
                    row.next_sequence_id,
                    row.last_time_ms,
                    row.last_run_time_ms,
                    row.producer_epoch,
                )
                producer.recent.append((row.last_sequence_id, row.last_entry_id))
                partition.producers.restore(keys.last_u64(key), producer)

    async def _read_groups(self) -> None:
        async for rows in pages(self._store, keys.GROUPS, b"", KEY_END):
            for key, value in rows:
                self._groups.restore(key.decode(), records.GroupRow.FromString(value))

    async def _read_subscriptions(self) -> None:
        cursors: dict[tuple[int, int, int], list[tuple[int, bytes]]] = {}
        async for rows in pages(self._store, keys.CURSORS, b"", KEY_END):
            for key, value in rows:
                place = (*_partition_of(key), int.from_bytes(key[12:20], "big"))
                cursors.setdefault(place, []).append((keys.last_u64(key), value))
        async for rows in pages(self._store, keys.SUBSCRIPTIONS, b"", KEY_END):
            for _, value in rows:
                record = records.SubscriptionRecord.FromString(value)
                place = (record.topic_id, record.partition, record.subscription_id)
                partition = self._partitions.get(place[:2])
                if partition is None:
                    continue
                name, subscription_id = record.subscription, record.subscription_id
                if record.absent:
                    absent = partition.subscriptions.restore_absent(
                        name, subscription_id, record.group_generation
                    )
                    self._subscription_indexes[place] = absent.index
                    continue
                cursor = Acknowledgements.restored(cursors.get(place, []))
                restored = partition.subscriptions.restore(name, subscription_id, cursor)
                restored.committing = Committing.of_record(record)
                self._subscriptions[place] = restored
                self._subscription_indexes[place] = restored.index
                if record.HasField("owner"):
                    self._groups.restore_partition_owner(restored, record.owner)

    async def _read_index(self) -> None:
        for start, end in self._uncovered_ranges():
            async for rows in pages(self._store, keys.TXNINDEX, start, end):
                for key, value in rows:
                    txn_id, topic_id, number, subscription_id, ordinal = keys.txnindex_place(key)
                    index = self._index_of(topic_id, number, subscription_id)
                    if index is not None:
                        with _readable(keys.TXNINDEX):
                            index_rows.restore(index, txn_id, ordinal, value)
        for partition in self._partitions.values():
            partition.order.restore()

    def _index_of(
        self, topic_id: int, number: int, subscription_id: int
    ) -> TransactionIndex | None:
        if subscription_id:
            return self._subscription_indexes.get((topic_id, number, subscription_id))
        partition = self._partitions.get((topic_id, number))
        return partition.index if partition is not None else None

    def _uncovered_ranges(self) -> list[tuple[bytes, bytes]]:
        """Return key ranges of the index that watermarks do not cover, in order."""
        ranges: list[tuple[bytes, bytes]] = []
        start = b""
        for tcid, watermark in self._watermarks.known():
            if not watermark.low_watermark:
                continue
            inc = watermark.incarnation
            ranges.append((start, TxnID.of(tcid, inc, 0).to_bytes()))
            live = list(watermark.live) + [(one, one) for one in self._orphans.get(tcid, [])]
            for first, last in sorted(live):
                ranges.append(
                    (TxnID.of(tcid, inc, first).to_bytes(), _after(TxnID.of(tcid, inc, last)))
                )
            start = TxnID.of(tcid, inc, watermark.low_watermark).to_bytes()
        ranges.append((start, KEY_END))
        return ranges

    async def _read_open_transactions(self) -> None:
        """Find where the batches of open transactions begin."""
        for partition in self._partitions.values():
            prefix = keys.partition(partition.name.topic_id, partition.name.partition)
            for txn_id, transaction in partition.index.open.items():
                by_ordinal = {one.ordinal: one for one in transaction.writers.values()}
                start = prefix + txn_id.to_bytes()
                try:
                    async for rows in pages(self._store, keys.TXNLOG, start, end_of_prefix(start)):
                        self._take_batches(by_ordinal, rows)
                except RowsUnreadable as error:
                    # The transaction may still be aborted; if it commits, readers get DataLoss for
                    # the missing part.
                    self._take_batches(by_ordinal, error.rows)
                    for writer in by_ordinal.values():
                        writer.are_starts_known = False

    def _take_batches(self, by_ordinal: Mapping[int, Writer], rows: Iterable[Row]) -> None:
        for key, value in rows:
            _, ordinal, index = keys.txnlog_place(key)
            writer = by_ordinal.get(ordinal)
            if writer is None or index >= writer.next_index:
                continue  # The transaction's index row was lost.
            writer.batch_starts.append(index)
            writer.stored_bytes += len(value)
            self._open_bytes.take(writer.account, len(value))

    async def _read_pending_acks(self) -> None:
        async for rows in pages(self._store, keys.PENDINGACKS, b"", KEY_END):
            for key, value in rows:
                place = (*_partition_of(key), int.from_bytes(key[12:20], "big"))
                subscription = self._subscriptions.get(place)
                if subscription is None:
                    continue
                txn_id, ordinal, ack_sequence = keys.pending_ack_place(key)
                with _readable(keys.PENDINGACKS):
                    ack = pending_ack_rows.unpack(ordinal, ack_sequence, value)
                subscription.cursor.acknowledge_in(txn_id, ack)


@contextmanager
def _readable(family: str) -> Iterator[None]:
    """Turn the error of a damaged row into the one of a row that the disk does not return."""
    try:
        yield
    except ValueError as error:
        raise RowsUnreadable(str(error), family=family) from error


def _partition_of(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:12], "big")


def _after(txn_id: TxnID) -> bytes:
    """Return the smallest key above all keys of a transaction."""
    if txn_id.counter < COUNTER_MAX:
        return TxnID(txn_id.most_bits, txn_id.counter + 1).to_bytes()
    if txn_id.most_bits < (TCID_MAX << 48 | INCARNATION_MAX):
        return TxnID(txn_id.most_bits + 1, 0).to_bytes()
    return KEY_END
