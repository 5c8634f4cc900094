"""Subscription on a partition: its acks, the transactions that hold some of them, its rows.

`acknowledgements` knows the state of each offset, `delivery` which consumer gets it, and
`transaction_index` which transactions touched it; this module keeps the three consistent and writes
their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar_broker import keys
from magnetar_broker.dispatch import pending_ack_rows
from magnetar_broker.dispatch.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.dispatch.dispatch import Dispatcher
from magnetar_broker.environment import Environment
from magnetar_broker.log.log_reader import LogReader
from magnetar_broker.log.offset_set import OffsetSet, Range
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.subscriptions.committing import Committing
from magnetar_broker.subscriptions.delivery import Delivery
from magnetar_broker.subscriptions.group_ownership import GroupOwnership
from magnetar_broker.transactions import index_rows
from magnetar_broker.transactions.transaction_index import NO_MEMBER, End, TransactionIndex
from magnetar_core.errors import (
    Gone,
    IllegalGeneration,
    InvalidArgument,
    OutOfRange,
    QuotaExceeded,
    ResourceInUse,
    TransactionConflict,
    UnknownMember,
)
from magnetar_core.history.events import Acked, AcksPending, CursorMoved, MessagesRemoved
from magnetar_core.ids import MemberName, SubscriptionName, TxnID
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
        # The relation to its group, if it belongs to a group.
        self.group_ownership: GroupOwnership | None = None
        # What a Kafka group of the same name has left here.
        self.committing = Committing()
        self._is_record_stale = False
        # Transactions that must end before the attached consumer gets messages.
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
        """The dispatcher for the type of the attached consumers."""
        return self.delivery.dispatcher

    # Acknowledgements

    def acknowledge(
        self, ranges: Sequence[Range], *, cumulative: bool, member: MemberName | None = None
    ) -> None:
        """Apply a plain ack.

        Args:
            member: the group's member, if the subscription belongs to a group.
        Raises:
            InvalidArgument: an offset was never in the log.
            UnknownMember: as GroupOwnership.check.
            FencedInstance: as GroupOwnership.check.
            IllegalGeneration: as GroupOwnership.check.
        """
        self._check_owner(member)
        self._check_ranges(ranges)
        if cumulative:
            # Offsets below the floor are acknowledged already; acknowledge() skips them.
            ranges = [(0, max(last for _, last in ranges))]
        if self._delete(ranges):
            self._moved_otherwise()

    def _skip(self, skipped: Range) -> None:
        """Count an unreadable range as acknowledged, once a consumer reaches it."""
        if self._delete([skipped]):
            self._moved_otherwise()

    def _delete(self, ranges: Sequence[Range]) -> bool:
        """Acknowledge messages; return whether one of them was not before."""
        deleted = self.cursor.acknowledge(ranges)
        if deleted:
            if self._environment.history is not None:
                self._environment.history.note(Acked(self.name, tuple(deleted)))
            settling = self.dispatcher.acknowledged(deleted)
            self._environment.defer_rows(self)
            if settling:
                self._environment.when_written(lambda: self._settle(settling))
        return bool(deleted)

    def acknowledge_in(
        self,
        txn_id: TxnID,
        consumer_id: int,
        ack_sequence: int,
        ranges: Sequence[Range],
        *,
        producer_epoch: int,
        member: MemberName | None = None,
        two_phase_commit: bool = False,
    ) -> None:
        """Apply an ack in a transaction: PENDING becomes PENDING_ACK, or nothing happens.

        Raises:
            TransactionConflict: a message is acknowledged, or pending in another transaction.
            InvalidTxnState: as TransactionIndex.check_write.
            SequenceGap: as TransactionIndex.check_write.
            QuotaExceeded: as TransactionIndex.check_write, or too many transactions are open.
            InvalidArgument: an offset was never in the log; or the group takes no part in two-phase
                commit.
            UnknownMember: as GroupOwnership.check.
            FencedInstance: as GroupOwnership.check.
            IllegalGeneration: as GroupOwnership.check.
        """
        # Checked for a repeat, too: the first ack may be gone with its transaction.
        self._check_owner(member)
        if self.group_ownership is not None:
            self.group_ownership.check_transactional(two_phase_commit=two_phase_commit)
        if self._check_write(txn_id, consumer_id, ack_sequence):
            return
        self._check_ranges(ranges)
        self.cursor.check_transactional(txn_id, ranges)
        ack = PendingAck(0, ack_sequence, tuple(ranges))
        self._hold(txn_id, consumer_id, ack, producer_epoch, member or NO_MEMBER)

    def _check_write(self, txn_id: TxnID, consumer_id: int, ack_sequence: int) -> bool:
        """Return whether an ack is a repeat.

        Raises:
            InvalidTxnState: as TransactionIndex.check_write.
            SequenceGap: as TransactionIndex.check_write.
            QuotaExceeded: as TransactionIndex.check_write, or too many transactions are open.
        """
        index, config = self.index, self._environment.config
        if index.check_write(
            txn_id, consumer_id, ack_sequence, 1, writers_max=config.txn_writers_max
        ):
            return True
        if txn_id not in index.open and len(index.open) >= config.open_txns_max:
            raise QuotaExceeded(f"{config.open_txns_max} transactions are open here")
        return False

    def _hold(
        self,
        txn_id: TxnID,
        consumer_id: int,
        ack: PendingAck,
        producer_epoch: int,
        member: MemberName,
    ) -> None:
        """Apply an ack in a transaction that was checked; its ordinal is set here."""
        environment, ranges = self._environment, ack.ranges
        is_new = txn_id not in self.index.open
        transaction, writer = self.index.record_write(
            txn_id,
            consumer_id,
            1,
            now_ms=environment.clock.wall_ms(),
            start_offset=self._log.end_offset,
            producer_epoch=producer_epoch,
            member=member,
        )
        ack.ordinal = writer.ordinal
        self.cursor.acknowledge_in(txn_id, ack)
        if environment.history is not None:
            pending = AcksPending(self.name, txn_id, consumer_id, ack.ack_sequence, ranges)
            environment.history.note(pending)
        self.dispatcher.pend(ranges, consumer_id)
        batch = environment.commits.batch
        batch.put(
            keys.PENDINGACKS,
            keys.pending_ack(self._prefix, txn_id, writer.ordinal, ack.ack_sequence),
            pending_ack_rows.pack(ranges, ack.commit),
        )
        index_key = keys.txnindex_at(txn_id, self._prefix)
        index_rows.put_written(batch, index_key, transaction, writer)
        if is_new:
            environment.metrics.open_txns += 1

    # Offsets of a Kafka group

    @property
    def committed(self) -> CommittedOffset | None:
        """The offset from which the Kafka group of this name reads on; None: it has none yet."""
        state = self.committing
        if state.committed is not None or state.made_by_commit:
            return state.committed
        return CommittedOffset(self.cursor.floor)

    def commit(self, asked: CommittedOffset) -> None:
        """Commit an offset: the cursor moves there, forward or back.

        Messages above that are acknowledged stay so, unless it moves back.

        Raises:
            UnknownMember: the group of this name has members of ours.
            ResourceInUse: transactions have acknowledged what it moves over.
        """
        self._check_owner(None)
        cursor, known = self.cursor, self.committed
        if known is None or known.offset != asked.offset:
            target = max(self._log.first_offset, min(asked.offset, self._log.durable_end))
            if target < cursor.floor:
                self._refuse_pending("a commit of an earlier offset")
                self._move_to(target)
            elif target > cursor.floor:
                if cursor.pending.intersects(cursor.floor, target - 1):
                    self._refuse_pending("a commit")
                self._delete([(cursor.floor, target - 1)])
        self._note_committed(asked)

    def commit_in(
        self,
        txn_id: TxnID,
        writer_id: int,
        asked: CommittedOffset,
        *,
        producer_epoch: int,
        two_phase_commit: bool = False,
    ) -> None:
        """Commit an offset in a transaction: what is PENDING below it becomes PENDING_ACK.

        A repeat is recognised by what it says.

        Args:
            writer_id: numbers the commits of a transaction here; always the same for the client.
        Raises:
            TransactionConflict: another transaction acknowledges a message below; or the offset is
                below the one that is committed.
            UnknownMember: the group of this name has members of ours.
            InvalidTxnState: as TransactionIndex.check_write.
            QuotaExceeded: as acknowledge_in.
            InvalidArgument: the group takes no part in two-phase commit.
        """
        self._check_owner(None)
        if self.group_ownership is not None:
            self.group_ownership.check_transactional(two_phase_commit=two_phase_commit)
        transaction = self.index.open.get(txn_id)
        writer = transaction.writers.get(writer_id) if transaction is not None else None
        sequence = writer.next_index if writer is not None else 0
        self._check_write(txn_id, writer_id, sequence)
        pending = self.cursor.transactions.get(txn_id)
        before = pending.commit if pending is not None else None
        if before == asked:
            return
        before = before or self.committed
        if before is not None and asked.offset < before.offset:
            raise TransactionConflict(
                f"offset {asked.offset} lies below the committed offset {before.offset}: abort, or"
                " commit it outside of a transaction"
            )
        target = min(asked.offset, self._log.durable_end)
        if self.cursor.is_held_by_others(txn_id, target):
            raise TransactionConflict(
                f"another transaction is acknowledging a message below {target}: abort, then retry"
            )
        ranges = tuple(self.cursor.free_ranges(self.cursor.floor, target))
        ack = PendingAck(0, sequence, ranges, asked)
        self._hold(txn_id, writer_id, ack, producer_epoch, NO_MEMBER)

    def note_use(self) -> None:
        """Note that others than a Kafka group use the subscription: it does not expire."""
        if self.committing.made_by_commit:
            self.committing.made_by_commit = False
            self._record_changed()

    def note_generation(self, generation: int) -> None:
        """Refuse all generations of the Kafka group before this one from now on."""
        if generation > self.committing.generation:
            self.committing.generation = generation
            self._record_changed()

    def forget_group(self) -> None:
        """Forget the Kafka group of this name; the cursor stays where it is."""
        self.committing = Committing()
        self._record_changed()

    def _note_committed(self, asked: CommittedOffset) -> None:
        floor = self.cursor.floor
        if self._log.first_offset <= asked.offset < floor:
            # The messages from there on are acknowledged already.
            asked = asked._replace(offset=floor)
        if asked != self.committing.committed:
            self.committing.committed = asked
            self._record_changed()

    def _moved_otherwise(self) -> None:
        if self.committing.moved_otherwise():
            self._record_changed()

    def _record_changed(self) -> None:
        self._is_record_stale = True
        self._environment.defer_rows(self)

    # Ends of transactions

    def end(self, end: End) -> None:
        """End a transaction, as CommandEndTxnOnSubscription asks.

        Raises:
            InvalidTxnState: as TransactionIndex.plan_end.
            TxnIncomplete: as TransactionIndex.plan_end.
        """
        already_ended, transaction, writers = self.index.plan_end(end, self._log.ledger_id)
        if already_ended:
            return
        txn_id, environment = end.txn_id, self._environment
        batch = environment.commits.batch
        pending = self.cursor.transactions.get(txn_id)
        if pending is not None:
            for ack in pending.acks:
                key = keys.pending_ack(self._prefix, txn_id, ack.ordinal, ack.ack_sequence)
                batch.delete(keys.PENDINGACKS, key)
        kept = {}
        for writer, count in writers:
            kept[writer.ordinal] = count
        deleted, released = self.cursor.end(txn_id, kept)
        has_released = bool(released)
        if has_released:
            has_released = self._forget_removed(released)
        index_rows.put_ended(
            batch,
            keys.txnindex_at(txn_id, self._prefix),
            self.index.record_end(end),
            transaction,
            marker_entry_id=None,
        )
        if transaction is not None:
            environment.metrics.open_txns -= 1
        environment.defer_rows(self)
        commit = pending.commit_of(kept) if pending is not None else None
        if commit is not None:
            self._note_committed(commit)
        elif deleted:
            self._moved_otherwise()
        delivery = self.delivery
        settling = delivery.dispatcher.acknowledged(deleted)
        if has_released or delivery.waiting:
            delivery.dispatcher.withhold(released)
            environment.when_durable(lambda: self._release(released))
        if settling:
            environment.when_durable(lambda: self._settle(settling))

    def _forget_removed(self, released: OffsetSet) -> bool:
        """Count those offsets as DELETED that retention removed; return whether any are left.

        Retention does not wait for pending acks.
        """
        removed_end = self._log.first_offset
        if released.first() < removed_end:
            released.discard(0, removed_end - 1)
            self.cursor.skip_to(removed_end)
            # A dispatcher that began after they were removed has them as pending.
            self.dispatcher.skip_to(removed_end)
        return bool(released)

    def _release(self, offsets: OffsetSet) -> None:
        self.dispatcher.release(offsets)
        if self.delivery.waiting:
            self.delivery.wait(self._has_to_wait())
        self.delivery.wake()

    def _settle(self, offsets: OffsetSet) -> None:
        self.dispatcher.settle(offsets)
        self.delivery.wake()

    def _pending_acks(self) -> Iterator[tuple[int, Range]]:
        """Yield the ranges in PENDING_ACK, with the ids of their consumers."""
        for txn_id, pending in self.cursor.transactions.items():
            writers = self.index.open[txn_id].writers.values()
            consumer_ids = {writer.ordinal: writer.writer_id for writer in writers}
            for ack in pending.acks:
                for one in ack.ranges:
                    yield consumer_ids[ack.ordinal], one

    # Groups

    def claim(self, group_ownership: GroupOwnership) -> None:
        """Let the subscription belong to a group from now on, or to another owner in it.

        Attached consumers are no longer the owner's. The new owner waits for transactions in which
        earlier owners acknowledged.
        """
        self.group_ownership = group_ownership
        self.note_use()
        lost = IllegalGeneration(f"{self.name} was given to another member of its group")
        self.delivery.close_consumers(lost)
        self._after = frozenset()
        self.delivery.wait(self._has_to_wait())

    def deliver_after(self, txn_ids: Iterable[TxnID]) -> None:
        """Deliver nothing to the attached consumer before these transactions have ended here.

        In a group, it also waits for what its owner's consumer before it had to wait for.
        """
        after = set(txn_ids)
        if self.group_ownership is not None:
            after.update(one for one in self._after if one in self.index.open)
        self._after = frozenset(after)
        self.delivery.wait(self._has_to_wait())

    def _has_to_wait(self) -> bool:
        if self.group_ownership is None and not self._after:
            return False
        # Withheld messages come back in a moment, and lie before messages that are not read yet.
        return bool(self.dispatcher.withheld) or bool(self.awaited())

    def awaited(self) -> list[TxnID]:
        """Return open transactions for which delivery waits."""
        awaited = [one for one in self._after if one in self.index.open]
        if self.group_ownership is not None:
            earlier = self.group_ownership.awaited(self.index.open.values())
            awaited += [one for one in earlier if one not in self._after]
        return awaited

    def left_behind(self) -> list[TxnID]:
        """Return transactions of members that are no longer in the group."""
        if self.group_ownership is None:
            return []
        return self.group_ownership.left_behind(self.index.open.values())

    def _check_owner(self, member: MemberName | None) -> None:
        if self.group_ownership is not None:
            self.group_ownership.check(member)
        elif member is not None:
            raise UnknownMember(f"{self.name} belongs to no group: join one")

    # Administration

    def seek(self, offset: int) -> None:
        """Move the cursor to an offset; attached consumers are told to attach again.

        Call check_seek first.
        """
        self._move_to(offset)
        self._moved_otherwise()

    def _move_to(self, offset: int) -> None:
        self.cursor.move_floor(offset)
        if self._environment.history is not None:
            self._environment.history.note(CursorMoved(self.name, offset))
        self._environment.defer_rows(self)
        self.delivery.cursor_moved()

    def check_seek(self, offset: int, member: MemberName | None = None) -> None:
        """Check that the cursor may be moved to an offset.

        Args:
            member: the group's member, if the subscription belongs to a group.
        Raises:
            UnknownMember: as GroupOwnership.check.
            FencedInstance: as GroupOwnership.check.
            IllegalGeneration: as GroupOwnership.check.
            ResourceInUse: open transactions have acknowledged here.
            OutOfRange: the offset is not in the log.
            Gone: the subscription was deleted meanwhile.
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
        """Check that the subscription may be deleted.

        Raises:
            ResourceInUse: acks are pending.
        """
        self._refuse_pending("deletion")

    def close(self) -> None:
        """Tell attached consumers that the subscription is being deleted.

        The owner removes its rows.
        """
        self.delivery.closed = True
        self._environment.deferred_rows.pop(self, None)
        self.delivery.close_consumers()

    def trimmed(self, first_offset: int) -> None:
        """Count messages below first_offset, which retention removed, as DELETED."""
        if self._environment.history is not None:
            self._environment.history.note(MessagesRemoved(self.name, first_offset))
        self.cursor.skip_to(first_offset)
        self.dispatcher.skip_to(first_offset)
        self._environment.defer_rows(self)

    def write_deferred_rows(self, batch: WriteBatch) -> None:
        """Write changed chunks of the cursor, each at most once per group."""
        name, cursor = self.name, self.cursor
        for chunk in cursor.stale_chunks:
            key = keys.cursor_chunk(name.topic_id, name.partition, self.subscription_id, chunk)
            batch.delete(keys.CURSORS, key)
        for chunk in cursor.dirty_chunks:
            key = keys.cursor_chunk(name.topic_id, name.partition, self.subscription_id, chunk)
            batch.put(keys.CURSORS, key, cursor.chunk_row(chunk))
        cursor.stale_chunks.clear()
        cursor.dirty_chunks.clear()
        if self._is_record_stale:
            self._is_record_stale = False
            batch.put(keys.SUBSCRIPTIONS, self._prefix, self.record().SerializeToString())

    def record(self) -> records.SubscriptionRecord:
        """Return the record of the subscription, as stored."""
        name = self.name
        record = records.SubscriptionRecord(
            subscription_id=self.subscription_id,
            topic_id=name.topic_id,
            partition=name.partition,
            subscription=name.subscription,
        )
        self.committing.put_into(record)
        if self.group_ownership is not None:
            owner = self.group_ownership.partition_owner
            record.owner.SetInParent()
            if owner is not None:
                record.owner.member_id, record.owner.generation = owner
        return record

    @property
    def backlog(self) -> int:
        """Return how many messages are not DELETED."""
        above = self._log.durable_end - self.cursor.floor
        return max(0, above - len(self.cursor.deleted))

    def _check_ranges(self, ranges: Sequence[Range]) -> None:
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
