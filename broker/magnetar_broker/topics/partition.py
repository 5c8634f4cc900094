"""Partition: its log, its sidecar transaction buffer, its producers and subscriptions.

Every method decides and applies at once; its result may leave only when the group commit's position
at that moment is durable.
Source: PIP-31, Broker - Transaction Buffer; docs/architecture.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_broker.log.entries import DataEntry, Entry, MarkerEntry, MarkerWriter
from magnetar_broker.log.log_reader import LogReader
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.subscriptions.subscriptions import Subscriptions
from magnetar_broker.transactions import index_rows
from magnetar_broker.transactions.order import Order
from magnetar_broker.transactions.producers import Producers, unwrapped, with_epoch
from magnetar_broker.transactions.sender import Sender
from magnetar_broker.transactions.transaction_index import (
    End,
    KeptWriter,
    Outcome,
    TransactionIndex,
    Writer,
)
from magnetar_broker.transactions.waiting_ends import AskedEnd, WaitingEnds
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    MagnetarError,
    ProducerFenced,
    QuotaExceeded,
    ResourceInUse,
)
from magnetar_core.history.events import (
    NO_PRODUCER,
    MarkerWritten,
    ParticipantCreated,
    ParticipantDeleted,
    PlainSent,
    ProducersForgotten,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.server.commands import Desk
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import WriteBatch, end_of_prefix

# With more rows than this, a range deletion is used instead of single deletions.
DELETES_BY_KEY_MAX = 4_096
# How many batches of a writer a marker notes, so that retention deletes them by their keys.
BATCH_STARTS_NOTED_MAX = 64


@dataclass(slots=True)
class _Growth:
    """Growth of a log by a group: the group's position, and where the log ends with it."""

    position: int
    end: int


class Partition:
    """State of a partition."""

    def __init__(
        self,
        environment: Environment,
        name: PartitionName,
        row: records.PartitionRow,
        take_subscription_id: Callable[[], int],
        *,
        ledger_id: int = 1,
    ) -> None:
        self.name = name
        self.log = PartitionLog(
            first_offset=row.first_offset,
            end_offset=row.end_offset,
            retained_bytes=row.retained_bytes,
            tail_bytes_max=environment.config.constants.tail_bytes_max,
            skipped=[(one.first, one.last) for one in row.skipped],
            ledger_id=ledger_id,
            tails=environment.tails,
            highest_stamp=row.highest_stamp,
            last_append_time_ms=row.last_append_time_ms,
            timestamp_lead_ms=row.timestamp_lead_ms,
        )
        self.reader = LogReader(environment.store, self.log, name)
        self.producers = Producers()
        self.index: TransactionIndex = environment.new_index(name)
        self.waiting_ends = WaitingEnds()
        self.order = Order(self.index, lambda call: environment.spawn(_in_another_turn(call)))
        self.subscriptions = Subscriptions(
            environment, name, self.log, self.reader, take_subscription_id
        )
        # Whether the sidecar txnlog was ever used: until then it does not exist.
        self.has_txnlog = row.has_txnlog
        self.deleted = False
        self._growing = _Growth(-1, 0)
        self._environment = environment
        self._prefix = keys.partition(name.topic_id, name.partition)
        self._place = keys.in_partition(name.topic_id, name.partition, 0)

    @property
    def ledger_id(self) -> int:
        """The ledger id of the log."""
        return self.log.ledger_id

    # Sends

    def send(
        self, producer_id: int, sequence_id: int, count: int, batch: bytes
    ) -> tuple[int | None, bool]:
        """Append a plain batch.

        Returns:
            The offset of its first message, and whether it was appended now. A repeat is not, and
            its offset may be forgotten: None.
        Raises:
            SequenceGap: as check_sequence.
            InvalidArgument: as check_sequence.
            DiskFull: the disk's reserve is reached; a repeat is still recognised.
        """
        if self.producers.check(producer_id, sequence_id, count):
            return self.producers.entry_of(producer_id, sequence_id), False
        environment, offset = self._environment, self.log.end_offset
        environment.disk_reserve.check()
        now_ms = environment.clock.wall_ms()
        self.producers.accept(
            producer_id,
            sequence_id,
            count,
            offset,
            now_ms=now_ms,
            run_time_ms=environment.run_time.now_ms(),
        )
        self._append(DataEntry(offset, count, self.log.next_append_time_ms(now_ms), batch))
        if environment.history is not None:
            sent = PlainSent(self.name, producer_id, sequence_id, count, offset)
            environment.history.note(sent)
        return offset, True

    def send_in_epoch(
        self, producer_id: int, producer_epoch: int, sequence: int, count: int, batch: bytes
    ) -> tuple[int | None, bool, int, int]:
        """Append a plain batch of a producer whose id has epochs, as send() does.

        A new epoch begins at sequence 0, and takes the place of the epoch before it.

        Args:
            sequence: of 31 bits; it begins at 0 again after the highest.
        Returns:
            As send(); then the producer's id and the sequence as they are stored.
        Raises:
            ProducerFenced: a later epoch of the producer is known.
            SequenceGap: as send().
            InvalidArgument: as send().
            DiskFull: as send().
        """
        newest = self.producers.newest_epoch(producer_id)
        if newest is not None and producer_epoch < newest:
            raise ProducerFenced(
                f"producer {producer_id} has epoch {newest} on {self.name}, and not"
                f" {producer_epoch}"
            )
        key = with_epoch(producer_id, producer_epoch)
        known = self.producers.get(key)
        sequence_id = unwrapped(known.next_sequence_id if known is not None else 0, sequence)
        offset, is_new = self.send(key, sequence_id, count, batch)
        if newest is not None and newest < producer_epoch:
            self._forget_producers([with_epoch(producer_id, newest)])
        return offset, is_new, key, sequence_id

    def note_timestamp(self, timestamp_ms: int) -> None:
        """Note the highest timestamp of the batch that was appended last, for searches by time."""
        lead_ms = timestamp_ms - self.log.last_append_time_ms
        self.log.timestamp_lead_ms = max(self.log.timestamp_lead_ms, lead_ms)

    def send_without_sequence(self, count: int, batch: bytes) -> int:
        """Append a plain batch whose repeats cannot be recognised; return its offset.

        Raises:
            DiskFull: the disk's reserve is reached.
        """
        environment, offset = self._environment, self.log.end_offset
        environment.disk_reserve.check()
        append_time_ms = self.log.next_append_time_ms(environment.clock.wall_ms())
        self._append(DataEntry(offset, count, append_time_ms, batch))
        if environment.history is not None:
            environment.history.note(PlainSent(self.name, NO_PRODUCER, 0, count, offset))
        return offset

    def send_in(
        self,
        txn_id: TxnID,
        producer_id: int,
        sequence_id: int,
        count: int,
        batch: bytes,
        *,
        follows: Sequence[TxnID],
        sender: Desk | Sender,
        producer_epoch: int,
    ) -> bool:
        """Store a batch of an open transaction in the sidecar txnlog.

        Args:
            sender: who sent it; the rights, if there is access control, have the client's quota.
            producer_epoch: epoch of the transactional producer; NO_EPOCH without one.
        Returns:
            Whether it was stored now; False: it is a repeat.
        Raises:
            InvalidTxnState: as TransactionIndex.check_write.
            SequenceGap: as TransactionIndex.check_write.
            InvalidArgument: as Order.to_follow.
            QuotaExceeded: too many transactions, writers, or bytes in open transactions.
            DiskFull: as send.
        """
        environment, index = self._environment, self.index
        config = environment.config
        if index.check_write(
            txn_id, producer_id, sequence_id, count, writers_max=config.txn_writers_max
        ):
            return False
        environment.disk_reserve.check()
        is_new = txn_id not in index.open
        if is_new and len(index.open) + len(self.order.passing) >= config.open_txns_max:
            raise QuotaExceeded(f"{config.open_txns_max} transactions are open on {self.name}")
        followed = self.order.to_follow(txn_id, producer_id, follows)
        byte_count = len(batch)
        open_bytes = environment.open_bytes
        rights = sender.rights
        limit = rights.quotas.open_txn_bytes_max if rights is not None else 0
        if rights is not None and limit:
            account = open_bytes.account_of_principal(rights.principal)
            open_bytes.check_principal(account, byte_count, limit)
        else:
            account = open_bytes.account(sender.session, sender.origin)
            open_bytes.check(account, byte_count)
        transaction, writer = index.record_write(
            txn_id,
            producer_id,
            count,
            follows=followed,
            now_ms=environment.clock.wall_ms(),
            start_offset=self.log.end_offset,
            producer_epoch=producer_epoch,
        )
        if not writer.stored_bytes:
            writer.account = account
        environment.recent_messages.keep(writer, batch)
        writer.stored_bytes += byte_count
        open_bytes.take(writer.account, byte_count)
        if not self.has_txnlog:
            self.has_txnlog = True
            environment.defer_rows(self)
        rows = environment.commits.batch
        rows.put(keys.TXNLOG, keys.txnlog(self._prefix, txn_id, writer.ordinal, sequence_id), batch)
        index_key = keys.txnindex_at(txn_id, self._place)
        index_rows.put_written(rows, index_key, transaction, writer)
        if is_new:
            environment.metrics.open_txns += 1
        return True

    def send_of_kafka(
        self,
        txn_id: TxnID,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        count: int,
        batch: bytes,
        *,
        sender: Sender,
    ) -> tuple[bool, int]:
        """Store a batch of Kafka's transactional producer, as send_in() does.

        Its sequence runs over the transactions of the epoch. It is in the producer's row, which is
        written in the same step.

        Args:
            sequence: of 31 bits; it begins at 0 again after the highest.
        Returns:
            Whether it was stored now; and its place in the transaction.
        Raises:
            ProducerFenced: a later epoch of the producer is known.
            SequenceGap: earlier messages are missing.
            InvalidArgument: it repeats, in part at least, what came before the transaction.
            MagnetarError: as send_in().
        """
        open_here = self.index.open.get(txn_id)
        writer = open_here.writers.get(producer_id) if open_here is not None else None
        held = writer.next_index if writer is not None else 0
        place = self.producers.place_in_transactions(producer_id, producer_epoch, sequence, held)
        if place < 0:
            raise InvalidArgument(
                f"sequence {sequence} of producer {producer_id} came before this transaction"
            )
        environment = self._environment
        is_new = self.send_in(
            txn_id,
            producer_id,
            place,
            count,
            batch,
            follows=(),
            sender=sender,
            producer_epoch=producer_epoch,
        )
        if is_new:
            self.producers.accept_in_transaction(
                producer_id,
                producer_epoch,
                count,
                now_ms=environment.clock.wall_ms(),
                run_time_ms=environment.run_time.now_ms(),
            )
            environment.defer_rows(self)
        return is_new, place

    # Ends

    def end(self, asked: AskedEnd) -> bool:
        """End a transaction, as CommandEndTxnOnPartition asks.

        Returns:
            Whether it has ended. If not, the commit waits for other transactions (rule k), and then
            done() or failed() is called.
        Raises:
            InvalidTxnState: as TransactionIndex.plan_end.
            TxnIncomplete: as TransactionIndex.plan_end.
        """
        end = asked.end
        already_ended, transaction, writers = self.index.plan_end(end, self.ledger_id)
        if already_ended:
            return True
        txn_id, order = end.txn_id, self.order
        awaited = order.awaited(writers)
        if awaited is not None:
            if self.waiting_ends.add(asked):
                order.park(awaited, partial(self._end_again, txn_id))
            return False
        # A single batch: there is no moment between the marker and COMMITTED.
        environment = self._environment
        rows = environment.commits.batch
        marker_entry_id: int | None = None
        if end.outcome is Outcome.COMMITTED:
            marker = self._marker(end, writers)
            if marker is not None:
                marker_entry_id = marker.entry_id
                self._append(marker)
        for writer, count in writers:
            if writer.recent is not None:
                environment.recent_messages.drop(writer)
            if count < writer.next_index:
                self._delete_batches(rows, txn_id, writer, from_index=count)
            environment.open_bytes.give_back(writer.account, writer.stored_bytes)
        if transaction is not None:
            environment.metrics.open_txns -= 1
        ended = self.index.record_end(end, order.ended(end, transaction))
        index_rows.put_ended(
            rows,
            keys.txnindex_at(txn_id, self._place),
            ended,
            transaction,
            marker_entry_id=marker_entry_id,
        )
        order.run()
        return True

    def _end_again(self, txn_id: TxnID) -> None:
        """Try a waiting commit again: a transaction that it waited for is settled."""
        for asked in self.waiting_ends.take(txn_id):
            try:
                if self.end(asked):
                    asked.done()
            except Exception as error:
                asked.failed(error)

    def refuse_waiting_ends(self, tcid: int, error: MagnetarError) -> None:
        """Refuse the waiting commits of a coordinator: its newest store may decide otherwise."""
        for asked in self.waiting_ends.take_all(tcid):
            asked.failed(error)

    def _marker(self, end: End, writers: Sequence[KeptWriter]) -> MarkerEntry | None:
        """Build the log's next entry: the marker of the messages that a commit keeps, if any."""
        messages = stored_bytes = 0
        parts: list[MarkerWriter] = []
        # In memory; None: not all of them are.
        recent: list[Sequence[tuple[int, bytes]]] | None = []
        for writer, kept in writers:
            if not kept:
                continue
            messages += kept
            stored_bytes += writer.stored_bytes
            starts: Sequence[int] = writer.batch_starts
            if kept < writer.next_index:
                starts = [start for start in starts if start < kept]
            batches = writer.recent
            if batches is None:
                recent = None
            elif recent is not None:
                # Batches that are discarded come after those that are kept.
                recent.append(list(zip(starts, batches, strict=False)))
            if not writer.are_starts_known or len(starts) > BATCH_STARTS_NOTED_MAX:
                starts = ()
            part = writer.ordinal, writer.writer_id, kept, tuple(starts)
            parts.append(tuple.__new__(MarkerWriter, part))
        if not messages:
            return None
        log = self.log
        return MarkerEntry(
            log.end_offset,
            messages,
            log.next_append_time_ms(self._environment.clock.wall_ms()),
            end.txn_id,
            tuple(parts),
            stored_bytes,
            recent,
            end.stamp,
        )

    def _delete_batches(
        self, batch: WriteBatch, txn_id: TxnID, writer: Writer, *, from_index: int
    ) -> None:
        def key(index: int) -> bytes:
            return keys.txnlog(self._prefix, txn_id, writer.ordinal, index)

        doomed = [start for start in writer.batch_starts if start >= from_index]
        if not writer.are_starts_known:
            batch.delete_range(keys.TXNLOG, key(from_index), key(writer.next_index))
        elif len(doomed) > DELETES_BY_KEY_MAX:
            batch.delete_range(keys.TXNLOG, key(doomed[0]), key(doomed[-1] + 1))
        else:
            for start in doomed:
                batch.delete(keys.TXNLOG, key(start))

    # Retention and deletion

    def refuse_deletion(self) -> None:
        """Check that the partition may be deleted.

        Raises:
            ResourceInUse: transactions are open, or acks are pending.
        """
        if self.index.open:
            raise ResourceInUse(
                f"{len(self.index.open)} transactions are open on {self.name}: end them first",
                open_txns=" ".join(str(txn_id) for txn_id in list(self.index.open)[:100]),
            )
        for subscription in self.subscriptions:
            subscription.refuse_deletion()

    def delete(self) -> None:
        """Delete every row; open transactions are aborted, and their coordinators get `Gone`."""
        self.deleted = True
        for asked in self.waiting_ends.take_all():
            asked.failed(Gone(f"{self.name} was deleted"))
        for txn_id in list(self.index.open):
            # Its outcome is not kept: the partition's index goes, too.
            self.end(AskedEnd(End.dropping(txn_id), None, 0, _nothing, _fail))
        self.log.forget_tail()
        batch = self._environment.commits.batch
        self.subscriptions.delete_all()
        end_of_rows = end_of_prefix(self._prefix)
        for family in (keys.LOG, keys.TXNLOG, keys.PRODUCERS):
            batch.delete_range(family, self._prefix, end_of_rows)
        batch.delete(keys.PARTITIONS, self._prefix)
        for txn_id in self.index.ended:
            batch.delete(keys.TXNINDEX, keys.txnindex_at(txn_id, self._place))
        self._environment.deferred_rows.pop(self, None)
        if self._environment.history is not None:
            self._environment.history.note(ParticipantDeleted(self.name))

    def delete_rows(self) -> None:
        """Delete the rows that a lost partition of this name has left.

        Rows of the index stay: they are not ordered by partition.
        """
        batch = self._environment.commits.batch
        end_of_rows = end_of_prefix(self._prefix)
        for family in keys.PARTITION_FAMILIES:
            batch.delete_range(family, self._prefix, end_of_rows)

    def trim(self, entries: list[Entry]) -> None:
        """Remove the log's first entries, with the transactions behind their markers."""
        batch = self._environment.commits.batch
        for entry in entries:
            batch.delete(
                keys.LOG,
                keys.in_partition(self.name.topic_id, self.name.partition, entry.entry_id),
            )
            if isinstance(entry, MarkerEntry):
                self._delete_messages(batch, entry)
        self.log.trim(entries[-1].end, sum(entry.retained_bytes for entry in entries))
        for subscription in self.subscriptions:
            subscription.trimmed(self.log.first_offset)
        self._environment.defer_rows(self)

    def trim_skipped(self, first_offset: int) -> None:
        """Remove a range that was given up from the front of the log, up to an offset.

        The messages of an unreadable marker stay in the sidecar: which they are is not known.
        """
        batch = self._environment.commits.batch
        place = self.name.topic_id, self.name.partition
        batch.delete_range(
            keys.LOG,
            keys.in_partition(*place, self.log.first_offset),
            keys.in_partition(*place, first_offset),
        )
        self.log.trim(first_offset, 0)
        for subscription in self.subscriptions:
            subscription.trimmed(first_offset)
        self._environment.defer_rows(self)

    def begin_inside(self, first_offset: int) -> None:
        """Let the log begin at an offset inside of its first entry."""
        self.log.trim(first_offset, 0)
        for subscription in self.subscriptions:
            subscription.trimmed(first_offset)
        self._environment.defer_rows(self)

    def skip_damaged(self, ranges: list[Range]) -> None:
        """Let readers and consumers continue after unreadable ranges."""
        self.log.skip(ranges)
        self._environment.defer_rows(self)
        for subscription in self.subscriptions:
            subscription.delivery.wake()

    def _delete_messages(self, batch: WriteBatch, marker: MarkerEntry) -> None:
        """Delete a transaction's messages, by their keys if the marker notes them.

        A range deletion would slow down every read.
        """
        if all(writer.batch_starts for writer in marker.writers):
            for writer in marker.writers:
                for start in writer.batch_starts:
                    key = keys.txnlog(self._prefix, marker.txn_id, writer.ordinal, start)
                    batch.delete(keys.TXNLOG, key)
            return
        prefix = self._prefix + marker.txn_id.to_bytes()
        batch.delete_range(keys.TXNLOG, prefix, end_of_prefix(prefix))

    @property
    def lowest_needed_offset(self) -> int:
        """Return the offset below which every subscription has acknowledged all messages."""
        floors = [one.cursor.floor for one in self.subscriptions]
        return min(floors, default=self.log.durable_end)

    def forget_covered(self) -> None:
        """Drop from the index the transactions that watermarks cover."""
        batch = self._environment.commits.batch
        for txn_id in self.index.forget_covered(self.order.passing):
            batch.delete(keys.TXNINDEX, keys.txnindex_at(txn_id, self._place))
        self.subscriptions.forget_covered()

    def write_new_rows(self) -> None:
        """Write the rows of a partition that was just created."""
        self._environment.defer_rows(self)
        if self._environment.history is not None:
            self._environment.history.note(ParticipantCreated(self.name, self.log.end_offset))

    def write_deferred_rows(self, batch: WriteBatch) -> None:
        """Write rows that change with every batch, once per group."""
        row = records.PartitionRow(
            first_offset=self.log.first_offset,
            end_offset=self.log.end_offset,
            retained_bytes=max(0, self.log.retained_bytes),
            has_txnlog=self.has_txnlog,
            highest_stamp=self.log.highest_stamp,
            last_append_time_ms=self.log.last_append_time_ms,
            timestamp_lead_ms=self.log.timestamp_lead_ms,
            skipped=[
                common.OffsetRange(first=first, last=last) for first, last in self.log.skipped
            ],
        )
        batch.put(keys.PARTITIONS, self._prefix, row.SerializeToString())
        for producer_id in self.producers.dirty:
            producer = self.producers.get(producer_id)
            assert producer is not None
            sequence_id, entry_id = producer.recent[-1]
            producer_row = records.ProducerRow(
                next_sequence_id=producer.next_sequence_id,
                last_time_ms=producer.last_time_ms,
                last_sequence_id=sequence_id,
                last_entry_id=entry_id,
                last_run_time_ms=producer.last_run_time_ms,
                producer_epoch=producer.epoch,
            )
            key = keys.in_partition(self.name.topic_id, self.name.partition, producer_id)
            batch.put(keys.PRODUCERS, key, producer_row.SerializeToString())
        self.producers.dirty.clear()

    def forget_idle_producers(self, before_run_time_ms: int) -> None:
        """Forget producers whose last batch is older than a run time."""
        idle = self.producers.idle_since(before_run_time_ms)
        if idle:
            self._forget_producers(idle)

    def _forget_producers(self, producer_ids: Sequence[int]) -> None:
        batch = self._environment.commits.batch
        if self._environment.history is not None:
            self._environment.history.note(ProducersForgotten(self.name, tuple(producer_ids)))
        for producer_id in producer_ids:
            self.producers.forget(producer_id)
            key = keys.in_partition(self.name.topic_id, self.name.partition, producer_id)
            batch.delete(keys.PRODUCERS, key)

    def _append(self, entry: Entry) -> None:
        environment = self._environment
        commits = environment.commits
        key = self._prefix + keys.u64(entry.entry_id)
        commits.batch.put(keys.LOG, key, entry.to_bytes())
        self.log.append(entry)
        if environment.history is not None and isinstance(entry, MarkerEntry):
            marked = MarkerWritten(self.name, entry.txn_id, entry.entry_id, entry.count)
            environment.history.note(marked)
        environment.defer_rows(self)
        position, growing = commits.position(), self._growing
        if position == growing.position:
            # The entry before it is in the same group: both are shown together.
            growing.end = self.log.end_offset
        else:
            self._growing = grown = _Growth(position, self.log.end_offset)
            environment.when_written(lambda: self._advance(grown.end))

    def _advance(self, written_end: int) -> None:
        self.log.advance(written_end)
        for subscription in self.subscriptions:
            subscription.delivery.wake()


def _nothing() -> None:
    return


def _fail(error: Exception) -> None:
    raise error


async def _in_another_turn(call: Callable[[], None]) -> None:
    await asyncio.sleep(0)
    call()
