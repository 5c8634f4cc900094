"""One subscription on one partition: its acks, the transactions that hold some of them, its rows.

What an offset's state is lies in `acknowledgements`, who gets it in `delivery`, which transactions
touched it in `transaction_index`; this module makes the three agree and writes their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from magnetar_broker import index_rows, keys
from magnetar_broker.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.delivery import Delivery
from magnetar_broker.dispatch import Dispatcher
from magnetar_broker.environment import Environment
from magnetar_broker.log_reader import LogReader
from magnetar_broker.offset_set import OffsetSet, Range
from magnetar_broker.ownership import Ownership
from magnetar_broker.partition_log import PartitionLog
from magnetar_broker.transaction_index import NO_MEMBER, End, TransactionIndex
from magnetar_core.errors import (
    Gone,
    IllegalGeneration,
    InvalidArgument,
    OutOfRange,
    QuotaExceeded,
    ResourceInUse,
    UnknownMember,
)
from magnetar_core.ids import MemberName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import WriteBatch


class Subscription:
    """A cursor and its consumers.

    Args:
        index: the transactions that acknowledged here or named it.
    """

    def __init__(
        self,
        environment: Environment,
        name: SubscriptionName,
        subscription_id: int,
        cursor: Acknowledgements,
        index: TransactionIndex,
        partition_log: PartitionLog,
        reader: LogReader,
    ) -> None:
        self.name = name
        self.subscription_id = subscription_id
        self.cursor = cursor
        self.index = index
        # Of the group that it belongs to, if it does.
        self.ownership: Ownership | None = None
        # What the attached consumer wants to be over first.
        self._after: frozenset[TxnID] = frozenset()
        self.delivery = Delivery(
            environment,
            name,
            Dispatcher(cursor, name.partition),
            partition_log,
            reader,
            self._pending_acks,
            self._skip,
        )
        self._environment = environment
        self._log = partition_log
        self._prefix = keys.in_partition(name.topic_id, name.partition, subscription_id)

    @property
    def dispatcher(self) -> Dispatcher:
        """Its kind follows the type of the consumers that attach."""
        return self.delivery.dispatcher

    # Acknowledgements

    def acknowledge(
        self, ranges: list[Range], *, cumulative: bool, member: MemberName | None = None
    ) -> None:
        """A plain ack.

        Args:
            member: of the group, where the subscription belongs to one.
        Raises:
            InvalidArgument: what was never there.
            UnknownMember, FencedInstance, IllegalGeneration: as Ownership.check.
        """
        self._check_owner(member)
        self._check_ranges(ranges)
        if cumulative:
            # What is below the floor is acknowledged already; acknowledge() skips it.
            ranges = [(0, max(last for _, last in ranges))]
        self._delete(ranges)

    def _skip(self, skipped: Range) -> None:
        """What cannot be read counts as acknowledged, once somebody comes to it."""
        self._delete([skipped])

    def _delete(self, ranges: list[Range]) -> None:
        deleted = self.cursor.acknowledge(ranges)
        if deleted:
            settling = self.dispatcher.acknowledged(deleted)
            self._environment.defer_rows(self)
            if settling:
                self._environment.when_durable(lambda: self._settle(settling))

    def acknowledge_in(
        self,
        txn_id: TxnID,
        consumer_id: int,
        ack_sequence: int,
        ranges: list[Range],
        *,
        producer_epoch: int,
        member: MemberName | None = None,
        two_phase_commit: bool = False,
    ) -> None:
        """A transactional ack: PENDING becomes PENDING_ACK, or nothing happens.

        Raises:
            TransactionConflict: a message is acknowledged, or pending in another transaction.
            InvalidTxnState, SequenceGap, QuotaExceeded: as TransactionIndex.check_write.
            InvalidArgument: offsets that were never there; a group that does not take part in
                two-phase commit.
            UnknownMember, FencedInstance, IllegalGeneration: as Ownership.check.
        """
        # Also a repeat: what it repeats may be gone with the transaction.
        self._check_owner(member)
        if self.ownership is not None:
            self.ownership.check_transactional(two_phase_commit=two_phase_commit)
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
            txn_id,
            consumer_id,
            1,
            now_ms=now_ms,
            start_offset=self._log.end_offset,
            producer_epoch=producer_epoch,
            member=member or NO_MEMBER,
        )
        self.cursor.acknowledge_in(txn_id, PendingAck(writer.ordinal, ack_sequence, tuple(ranges)))
        self.dispatcher.pend(ranges, consumer_id)
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
            index_rows.put_open(batch, key, self.index.open[txn_id])
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
        index_rows.put_ended(
            batch,
            self._index_key(end.txn_id),
            self.index.record_end(end),
            plan.transaction,
            marker_entry_id=None,
        )
        if plan.transaction is not None:
            self._environment.metrics.open_txns.dec()
        self._environment.defer_rows(self)
        settling = self.dispatcher.acknowledged(deleted.ranges())
        self.dispatcher.withhold(released)
        self._environment.when_durable(lambda: self._release(released))
        if settling:
            self._environment.when_durable(lambda: self._settle(settling))

    def _release(self, offsets: OffsetSet) -> None:
        self.dispatcher.release(offsets)
        if self.delivery.waiting:
            self.delivery.wait(self._has_to_wait())
        self.delivery.wake()

    def _settle(self, offsets: OffsetSet) -> None:
        self.dispatcher.settle(offsets)
        self.delivery.wake()

    def _pending_acks(self) -> Iterator[tuple[int, Range]]:
        """What is in PENDING_ACK, and who acknowledged it."""
        for txn_id, pending in self.cursor.transactions.items():
            writers = self.index.open[txn_id].writers.values()
            consumer_ids = {one.ordinal: one.writer_id for one in writers}
            for ack in pending.acks:
                for one in ack.ranges:
                    yield consumer_ids[ack.ordinal], one

    # Groups

    def claim(self, ownership: Ownership) -> None:
        """It belongs to a group from now on, or has another owner there.

        Whoever was attached is not the owner any more. The new one waits for transactions in which
        earlier ones acknowledged.
        """
        self.ownership = ownership
        lost = IllegalGeneration(f"{self.name} was given to another member of its group")
        self.delivery.close_consumers(lost)
        self.deliver_after(())

    def deliver_after(self, txn_ids: Iterable[TxnID]) -> None:
        """Whoever is attached gets nothing before these have ended here."""
        self._after = frozenset(txn_ids)
        self.delivery.wait(self._has_to_wait())

    def _has_to_wait(self) -> bool:
        if self.ownership is None and not self._after:
            return False
        # What is withheld comes back in a moment, and lies before what is not read yet.
        return bool(self.dispatcher.withheld) or bool(self.awaited())

    def awaited(self) -> list[TxnID]:
        """Open transactions for which delivery waits."""
        awaited = [one for one in self._after if one in self.index.open]
        if self.ownership is not None:
            earlier = self.ownership.awaited(self.index.open.values())
            awaited += [one for one in earlier if one not in self._after]
        return awaited

    def left_behind(self) -> list[TxnID]:
        """Transactions of members that are no longer in the group."""
        if self.ownership is None:
            return []
        return self.ownership.left_behind(self.index.open.values())

    def _check_owner(self, member: MemberName | None) -> None:
        if self.ownership is not None:
            self.ownership.check(member)
        elif member is not None:
            raise UnknownMember(f"{self.name} belongs to no group: join one")

    # Administration

    def seek(self, offset: int) -> None:
        """Start over at an offset; attached consumers are told to attach again.

        It may be done, as check_seek says.
        """
        self.cursor.move_floor(offset)
        self._environment.defer_rows(self)
        self.delivery.cursor_moved()

    def check_seek(self, offset: int, member: MemberName | None = None) -> None:
        """Whether the cursor may be moved there.

        Args:
            member: of the group, where the subscription belongs to one.
        Raises:
            UnknownMember, FencedInstance, IllegalGeneration: as Ownership.check.
            ResourceInUse: transactions have acknowledged here and not ended.
            OutOfRange: not in the log.
            Gone: deleted meanwhile.
        """
        if self.delivery.closed:
            raise Gone(f"subscription {self.name} was deleted")
        self._check_owner(member)
        self._refuse_pending("seek")
        if not self._log.first_offset <= offset <= self._log.end_offset:
            raise OutOfRange(
                f"offset {offset} is outside of {self._log.first_offset} to {self._log.end_offset}",
                first_offset=self._log.first_offset,
                end_offset=self._log.end_offset,
            )

    def refuse_deletion(self) -> None:
        """Raises ResourceInUse while acks pend."""
        self._refuse_pending("deletion")

    def close(self) -> None:
        """It is being deleted; attached consumers are told. Its rows are the owner's to remove."""
        self.delivery.closed = True
        self._environment.deferred_rows.pop(self, None)
        self.delivery.close_consumers()

    def trimmed(self, first_offset: int) -> None:
        """Retention removed what lies below, also what was not consumed."""
        self.cursor.skip_to(first_offset)
        self.dispatcher.skip_to(first_offset)
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
    def backlog(self) -> int:
        """Messages that are not DELETED."""
        above = self._log.durable_end - self.cursor.floor
        return max(0, above - len(self.cursor.deleted))

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
