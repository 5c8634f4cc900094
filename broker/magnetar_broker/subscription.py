"""One subscription on one partition: its consumers' conversations, its acks, its deliveries.

What an offset's state is lies in `acknowledgements`, who gets it in `dispatch`, which transactions
touched it in `transaction_index`; this module makes the three agree and writes their rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from magnetar_broker import index_rows, keys
from magnetar_broker.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.dispatch import Consumer, Dispatcher, SubscriptionType
from magnetar_broker.environment import Environment
from magnetar_broker.log_reader import LogReader, StoredBatch
from magnetar_broker.offset_set import OffsetSet, Range
from magnetar_broker.partition_log import PartitionLog
from magnetar_broker.transaction_index import End, TransactionIndex
from magnetar_core.commands import CommandSession
from magnetar_core.errors import InvalidArgument, OutOfRange, QuotaExceeded, ResourceInUse
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import WriteBatch, end_of_prefix

# Attach epochs remembered of consumers that have left.
PAST_CONSUMERS_MAX = 1_000


class Subscription:
    """A cursor and its consumers."""

    def __init__(
        self,
        environment: Environment,
        name: SubscriptionName,
        subscription_id: int,
        cursor: Acknowledgements,
        log: PartitionLog,
        reader: LogReader,
    ) -> None:
        self.name = name
        self.subscription_id = subscription_id
        self.cursor = cursor
        self.dispatcher = Dispatcher(cursor, name.partition)
        self.index = TransactionIndex(
            environment.watermarks.covers, environment.watermarks.is_superseded
        )
        self._environment = environment
        self._log = log
        self._reader = reader
        self._prefix = keys.in_partition(name.topic_id, name.partition, subscription_id)
        self._sessions: dict[int, CommandSession] = {}
        self._attach_epochs: dict[int, int] = {}
        self._read_ahead: deque[StoredBatch] = deque()
        self._pumping = False
        self._closed = False
        # Raised by whatever makes batches that are being read stale.
        self._generation = 0

    # Consumers

    def attach(
        self,
        session: CommandSession,
        consumer_id: int,
        consumer_name: str,
        subscription_type: SubscriptionType,
        attach_epoch: int,
    ) -> None:
        """A consumer joins on this conversation; its earlier self leaves.

        Raises:
            ConsumerBusy, SubscriptionExists: as Dispatcher.attach.
            InvalidArgument: a late copy of an earlier attempt.
        """
        if attach_epoch < self._attach_epochs.get(consumer_id, 0):
            raise InvalidArgument("a newer attachment of this consumer exists")
        earlier = self._consumer(consumer_id)
        if earlier is not None:
            same_session = self._sessions.get(consumer_id) is session
            if same_session and earlier.attach_epoch == attach_epoch:
                return
            self._detach(earlier)
        consumer = Consumer(consumer_id, consumer_name, attach_epoch)
        self.dispatcher.attach(consumer, subscription_type)
        self._sessions[consumer_id] = session
        self._attach_epochs.pop(consumer_id, None)
        self._attach_epochs[consumer_id] = attach_epoch
        while len(self._attach_epochs) > len(self._sessions) + PAST_CONSUMERS_MAX:
            del self._attach_epochs[next(iter(self._attach_epochs))]
        session.close_callbacks.append(lambda: self.close_consumer(session, consumer_id))
        self._tell_active()
        if earlier is not None:
            # What its earlier self held may go to others.
            self.wake()

    def close_consumer(self, session: CommandSession | None, consumer_id: int) -> None:
        """A consumer leaves, if it is attached by this conversation."""
        consumer = self._consumer(consumer_id)
        if consumer is not None and self._sessions.get(consumer_id) is session:
            self._detach(consumer)
            self._tell_active()
            self.wake()

    def is_active(self, consumer_id: int) -> bool:
        active = self.dispatcher.active
        return active is None or active.consumer_id == consumer_id

    def flow(self, session: CommandSession | None, consumer_id: int, permits: int) -> None:
        consumer = self._consumer(consumer_id)
        if consumer is not None and self._sessions.get(consumer_id) is session:
            consumer.permits += permits
            self.wake()

    def nack(self, consumer_id: int, ranges: Iterable[Range]) -> None:
        consumer = self._consumer(consumer_id)
        if consumer is not None:
            self.dispatcher.nack(consumer, ranges)
            self.wake()

    # Acknowledgements

    def acknowledge(self, ranges: list[Range], *, cumulative: bool) -> None:
        """A plain ack. Raises InvalidArgument for what was never there."""
        self._check_ranges(ranges)
        if cumulative:
            # What is below the floor is acknowledged already; acknowledge() skips it.
            ranges = [(0, max(last for _, last in ranges))]
        deleted = self.cursor.acknowledge(ranges)
        if deleted:
            self.dispatcher.acknowledged(deleted)
            self._environment.defer_rows(self)

    def acknowledge_in(
        self, txn_id: TxnID, consumer_id: int, ack_sequence: int, ranges: list[Range]
    ) -> None:
        """A transactional ack: PENDING becomes PENDING_ACK, or nothing happens.

        Raises:
            TransactionConflict: a message is acknowledged, or pending in another transaction.
            InvalidTxnState, SequenceGap, QuotaExceeded: as TransactionIndex.check_write.
            InvalidArgument: offsets that were never there.
        """
        config = self._environment.config
        if self.index.check_write(
            txn_id, consumer_id, ack_sequence, 1, writers_max=config.txn_writers_max
        ):
            return
        if txn_id not in self.index.open and len(self.index.open) >= config.open_txns_max:
            raise QuotaExceeded(f"{config.open_txns_max} transactions are open here")
        self._check_ranges(ranges)
        self.cursor.check_transactional(txn_id, ranges)
        now_ms = self._environment.clock.wall_ms()
        writer, is_new = self.index.record_write(
            txn_id, consumer_id, 1, follows=None, now_ms=now_ms
        )
        self.cursor.acknowledge_in(txn_id, PendingAck(writer.ordinal, ack_sequence, tuple(ranges)))
        self.dispatcher.pend(ranges)
        batch = self._environment.commits.batch
        row = records.PendingAckRow(
            ranges=[common.OffsetRange(first=first, last=last) for first, last in ranges]
        )
        batch.put(
            keys.PENDINGACKS,
            keys.pending_ack(self._prefix, txn_id, writer.ordinal, ack_sequence),
            row.SerializeToString(),
        )
        key = self._index_key(txn_id)
        if is_new:
            index_rows.put_open(batch, key, start_time_ms=now_ms)
            self._environment.metrics.open_txns.inc()
        index_rows.put_writer(batch, key, writer)

    def end(self, end: End) -> None:
        """CommandEndTxnOnSubscription.

        Raises:
            InvalidTxnState, TxnIncomplete: as TransactionIndex.plan_end.
        """
        plan = self.index.plan_end(end)
        if plan.already_ended:
            return
        batch = self._environment.commits.batch
        transaction = self.cursor.transactions.get(end.txn_id)
        for ack in transaction.acks if transaction is not None else ():
            batch.delete(
                keys.PENDINGACKS,
                keys.pending_ack(self._prefix, end.txn_id, ack.ordinal, ack.ack_sequence),
            )
        kept = {one.writer.ordinal: one.kept for one in plan.writers}
        deleted, released = self.cursor.end(end.txn_id, kept)
        removed_end = self._log.first_offset
        if released and released.first() < removed_end:
            # Retention did not wait for what pended; what it removed counts as DELETED.
            released.discard(0, removed_end - 1)
            self.cursor.skip_to(removed_end)
        self.index.record_end(end)
        index_rows.put_ended(
            batch,
            self._index_key(end.txn_id),
            self.index.ended[end.txn_id],
            plan.transaction,
            marker_entry_id=None,
        )
        if plan.transaction is not None:
            self._environment.metrics.open_txns.dec()
        self._environment.defer_rows(self)
        self.dispatcher.acknowledged(deleted.ranges())
        self.dispatcher.withhold(released)
        self._environment.when_durable(lambda: self._release(released))

    # Administration

    def seek(self, offset: int) -> None:
        """Start over at an offset; attached consumers are told to attach again.

        Raises:
            ResourceInUse: transactions have acknowledged here and not ended.
            OutOfRange: not in the log.
        """
        self._refuse_pending("seek")
        if not self._log.first_offset <= offset <= self._log.end_offset:
            raise OutOfRange(
                f"offset {offset} is outside of {self._log.first_offset} to {self._log.end_offset}",
                first_offset=self._log.first_offset,
                end_offset=self._log.end_offset,
            )
        self.cursor.move_floor(offset)
        self._generation += 1
        self._read_ahead.clear()
        self._environment.defer_rows(self)
        self._environment.when_durable(self._restart_dispatch)
        self._detach_all()

    def refuse_deletion(self) -> None:
        """Raises ResourceInUse while acks pend."""
        self._refuse_pending("deletion")

    def delete(self, batch: WriteBatch) -> None:
        """Remove all rows; attached consumers are told."""
        self._closed = True
        batch.delete(keys.SUBSCRIPTIONS, self._prefix)
        end = end_of_prefix(self._prefix)
        batch.delete_range(keys.CURSORS, self._prefix, end)
        batch.delete_range(keys.PENDINGACKS, self._prefix, end)
        for txn_id in self.index.ended:
            batch.delete(keys.TXNINDEX, self._index_key(txn_id))
        self._environment.deferred_rows.pop(self, None)
        self._detach_all()

    def trimmed(self, first_offset: int) -> None:
        """Retention removed what lies below, also what was not consumed."""
        self.cursor.skip_to(first_offset)
        self.dispatcher.skip_to(first_offset)
        self._environment.defer_rows(self)

    def forget_covered(self, batch: WriteBatch) -> None:
        for txn_id in self.index.forget_covered():
            batch.delete(keys.TXNINDEX, self._index_key(txn_id))

    def write_new_rows(self, batch: WriteBatch) -> None:
        """The rows of a subscription that was just created."""
        row = records.SubscriptionRecord(
            subscription_id=self.subscription_id,
            topic_id=self.name.topic_id,
            partition=self.name.partition,
            subscription=self.name.subscription,
        )
        batch.put(keys.SUBSCRIPTIONS, self._prefix, row.SerializeToString())
        self.cursor.mark_new()
        self._environment.defer_rows(self)

    def write_deferred_rows(self, batch: WriteBatch) -> None:
        """Cursor chunks, each at most once a group."""
        name, cursor = self.name, self.cursor
        for chunk in cursor.stale_chunks:
            key = keys.cursor_chunk(name.topic_id, name.partition, self.subscription_id, chunk)
            batch.delete(keys.CURSORS, key)
        for chunk in cursor.dirty_chunks:
            key = keys.cursor_chunk(name.topic_id, name.partition, self.subscription_id, chunk)
            batch.put(keys.CURSORS, key, cursor.chunk_row(chunk))
        cursor.stale_chunks.clear()
        cursor.dirty_chunks.clear()

    @property
    def consumer_names(self) -> list[str]:
        return [one.name or str(one.consumer_id) for one in self.dispatcher.consumers]

    @property
    def backlog(self) -> int:
        """Messages that are not DELETED."""
        above = self._log.durable_end - self.cursor.floor
        return max(0, above - len(self.cursor.deleted))

    # Delivery

    def wake(self) -> None:
        """Something changed: deliver what can be delivered."""
        if not self._pumping and not self._closed and self._next_offset() is not None:
            self._pumping = True
            self._environment.spawn(self._pump())

    async def _pump(self) -> None:
        try:
            while (offset := self._next_offset()) is not None:
                ahead = self._read_ahead
                while ahead and not ahead[0].first_offset <= offset < ahead[0].end:
                    ahead.popleft()
                if not ahead:
                    generation = self._generation
                    batches = await self._read(offset)
                    if generation != self._generation:
                        continue
                    ahead.extend(batches)
                self._deliver()
                # A long backlog lets the others have their turn.
                await asyncio.sleep(0)
        finally:
            self._pumping = False

    async def _read(self, offset: int) -> list[StoredBatch]:
        bytes_max = self._environment.config.dispatch_bytes_max
        try:
            return await self._reader.read(offset, bytes_max=bytes_max)
        except OutOfRange:
            # Trimmed between the decision and the read.
            self.dispatcher.skip_to(self._log.first_offset)
            return []

    def _next_offset(self) -> int | None:
        if self._closed:
            return None
        return self.dispatcher.next_offset(self._log.durable_end)

    def _deliver(self) -> None:
        """Hand out what was read ahead, as far as permits go."""
        deliveries: dict[int, list[wire.DeliveredBatch]] = {}
        ahead = self._read_ahead
        while ahead:
            offset = self._next_offset()
            stored = ahead[0]
            if offset is None or not stored.first_offset <= offset < stored.end:
                break
            assignment = self.dispatcher.assign(
                stored.first_offset, stored.count, stored.visible_count
            )
            if assignment is not None:
                deliveries.setdefault(assignment.consumer.consumer_id, []).append(
                    delivered_batch(stored, assignment.excluded, assignment.redelivery_count)
                )
        for consumer_id, batches in deliveries.items():
            self._push(consumer_id, batches)

    def _push(self, consumer_id: int, batches: list[wire.DeliveredBatch]) -> None:
        session = self._sessions.get(consumer_id)
        if session is None:
            return
        session.push(
            wire.CommandDeliver(
                consumer_id=consumer_id,
                topic_id=self.name.topic_id,
                partition=self.name.partition,
                ledger_id=1,
                batches=batches,
            )
        )
        self._environment.metrics.messages_out.inc(
            sum(
                one.num_messages - sum(gap.last - gap.first + 1 for gap in one.excluded)
                for one in batches
            )
        )

    def _release(self, offsets: OffsetSet) -> None:
        self.dispatcher.release(offsets)
        self.wake()

    def _restart_dispatch(self) -> None:
        self._generation += 1
        self._read_ahead.clear()
        self.dispatcher.restart()
        self.wake()

    def _consumer(self, consumer_id: int) -> Consumer | None:
        for consumer in self.dispatcher.consumers:
            if consumer.consumer_id == consumer_id:
                return consumer
        return None

    def _detach(self, consumer: Consumer) -> None:
        self.dispatcher.detach(consumer)
        self._sessions.pop(consumer.consumer_id, None)

    def _detach_all(self) -> None:
        for consumer in list(self.dispatcher.consumers):
            self._tell(consumer, active=False, closed=True)
            self._detach(consumer)

    def _tell_active(self) -> None:
        if self.dispatcher.type is SubscriptionType.FAILOVER:
            for consumer in self.dispatcher.consumers:
                self._tell(consumer, active=consumer is self.dispatcher.active, closed=False)

    def _tell(self, consumer: Consumer, *, active: bool, closed: bool) -> None:
        session = self._sessions.get(consumer.consumer_id)
        if session is not None:
            session.push(
                wire.CommandConsumerChange(
                    consumer_id=consumer.consumer_id,
                    topic_id=self.name.topic_id,
                    partition=self.name.partition,
                    active=active,
                    closed=closed,
                )
            )

    def _check_ranges(self, ranges: list[Range]) -> None:
        for first, last in ranges:
            if first > last or last >= self._log.durable_end:
                raise InvalidArgument(
                    f"offsets {first} to {last} are not in the log, which ends at"
                    f" {self._log.durable_end}"
                )

    def _refuse_pending(self, what: str) -> None:
        if self.index.open:
            raise ResourceInUse(
                f"{what} of {self.name} has to wait: {len(self.index.open)} transactions have"
                " acknowledged there; end them first",
                open_txns=" ".join(str(txn_id) for txn_id in list(self.index.open)[:100]),
            )

    def _index_key(self, txn_id: TxnID) -> bytes:
        name = self.name
        return keys.txnindex(txn_id, name.topic_id, name.partition, self.subscription_id)


def delivered_batch(
    stored: StoredBatch, excluded: Iterable[Range], redelivery_count: int = 0
) -> wire.DeliveredBatch:
    """A stored batch as it goes over the wire."""
    return wire.DeliveredBatch(
        entry_id=stored.entry_id,
        first_index=stored.first_index,
        num_messages=stored.count,
        batch=stored.batch,
        excluded=[common.OffsetRange(first=first, last=last) for first, last in excluded],
        redelivery_count=redelivery_count,
        append_time_ms=stored.append_time_ms,
        txn_id=stored.txn_id.to_wire() if stored.txn_id is not None else None,
    )
