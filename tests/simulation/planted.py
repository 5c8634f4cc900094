"""Planted bugs: is the simulation worth anything? Each is in the real code for one run only.

Every one is a mistake that somebody could make in good faith, and that a rule of
docs/protocol/rules.md forbids. `python -m tests.simulation.run --planted NAME` counts the seeds
until it is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from tests.simulation import planted_groups, planted_keys, planted_orphans
from tests.simulation.planting import Plant, replaced

from magnetar import PreparedTxnState, TransactionalProducer
from magnetar_broker import keys
from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.log.entries import DataEntry, MarkerEntry
from magnetar_broker.log.offset_set import CHUNK_BITS
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.topics.partition import Partition
from magnetar_broker.transactions import transaction_index
from magnetar_broker.transactions.order import Order
from magnetar_broker.transactions.producers import Producer, Producers
from magnetar_broker.transactions.transaction_index import End, OpenTransaction, Outcome, Writer
from magnetar_broker.transactions.waiting_ends import AskedEnd
from magnetar_coordinator.ending.finisher import Finisher
from magnetar_coordinator.metadata import transaction, transactional_id
from magnetar_coordinator.metadata.named_sequences import NamedSequenceState
from magnetar_coordinator.metadata.records import META_COUNTER, StatusChanged
from magnetar_coordinator.metadata.transaction import TxnEvent, TxnStatus
from magnetar_coordinator.metadata.transactional_id import (
    Epochs,
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.ids import TxnID
from magnetar_storage.store import WriteBatch


def reply_before_durable() -> AbstractContextManager[None]:
    """The coordinator answers at once (rule a)."""

    def answer(self: Runtime, reply: Any, body: Any) -> None:
        reply.send(body)

    return replaced(Runtime, "answer", answer)


def watermark_not_stored() -> AbstractContextManager[None]:
    """The broker forgets index rows, and after a restart also why (rule c)."""
    original = WriteBatch.put

    def put(self: WriteBatch, family: str, key: bytes, value: bytes) -> None:
        if family != keys.META or not key.startswith(keys.META_WATERMARK):
            original(self, family, key, value)

    return replaced(WriteBatch, "put", put)


def marker_written_twice() -> AbstractContextManager[None]:
    """A repeated commit at a partition appends a second marker (rule c)."""
    original_end, original_append = Partition.end, Partition._append

    def append(self: Partition, entry: Any) -> None:
        if isinstance(entry, MarkerEntry):
            markers = self.__dict__.setdefault("_planted_markers", {})
            markers[entry.txn_id] = entry
        original_append(self, entry)

    def end(self: Partition, asked: AskedEnd) -> None:
        marker = self.__dict__.get("_planted_markers", {}).get(asked.end.txn_id)
        if marker is not None and asked.end.outcome is Outcome.COMMITTED:
            again = MarkerEntry(
                self.log.end_offset,
                marker.count,
                marker.append_time_ms,
                marker.txn_id,
                marker.writers,
                marker.stored_bytes,
            )
            original_append(self, again)
        original_end(self, asked)

    return _both(replaced(Partition, "end", end), replaced(Partition, "_append", append))


def surplus_sends_kept() -> AbstractContextManager[None]:
    """A commit keeps also what the client had not counted (rule g)."""

    def kept(end: End, writer: Writer) -> int:
        if end.selection is not None and writer.writer_id not in end.selection:
            return 0
        return writer.next_index

    return replaced(transaction_index, "_kept", kept)


def ack_check_skipped() -> AbstractContextManager[None]:
    """Two transactions may acknowledge the same message (rule i)."""
    return replaced(Acknowledgements, "check_transactional", lambda *_: None)


def counter_reset() -> AbstractContextManager[None]:
    """A coordinator does not store its counter: it begins again after a restart (invariant 8)."""
    original = WriteBatch.put

    def put(self: WriteBatch, family: str, key: bytes, value: bytes) -> None:
        if key != META_COUNTER:
            original(self, family, key, value)

    return replaced(WriteBatch, "put", put)


def mark_delete_past_pending() -> AbstractContextManager[None]:
    """What is pending counts as acknowledged when the floor rises (rule i)."""
    original = Acknowledgements._raise_floor

    def raise_floor(self: Acknowledgements) -> None:
        original(self)
        while self.floor in self.pending:
            self.floor += 1
            self._mark_dirty(self.floor // CHUNK_BITS)
            original(self)

    return replaced(Acknowledgements, "_raise_floor", raise_floor)


def committing_expires() -> AbstractContextManager[None]:
    """A commit that takes longer than the timeout is aborted (docs/architecture.md)."""
    original_change, original_ended = Shard._apply_change, Shard._apply_ended
    original_told = Finisher.ended

    def change(self: Shard, record: Any, found: Any) -> None:
        original_change(self, record, found)
        if isinstance(record, StatusChanged) and record.new is TxnStatus.COMMITTING:
            # Its entry is still in the heap.
            self.expiry._deadlines[record.txn_id] = found.deadline_run_time_ms

    def ended(self: Shard, record: Any) -> None:
        if record.txn_id in self.expiry._deadlines:
            self.expiry.remove(record.txn_id)
        original_ended(self, record)

    def told(self: Finisher, end: Any, participants: Any) -> None:
        finishing = self._transactions.get(end.transaction.txn_id)
        if finishing is not None and end in finishing.ends:
            original_told(self, end, participants)

    transitions = {
        **transaction.TRANSITIONS,
        (TxnStatus.COMMITTING, TxnEvent.EXPIRED): TxnStatus.ABORTING,
    }
    return _both(
        replaced(Shard, "_apply_change", change),
        replaced(Shard, "_apply_ended", ended),
        replaced(Finisher, "ended", told),
        replaced(transaction, "TRANSITIONS", transitions),
    )


def dedup_off_after_recovery() -> AbstractContextManager[None]:
    """A restarted broker takes repeats of plain sends for new ones (invariant 4)."""
    original_restore, original_check = Producers.restore, Producers.check

    def restore(self: Producers, producer_id: int, producer: Producer) -> None:
        self.__dict__.setdefault("_planted_restored", {})[producer_id] = None
        original_restore(self, producer_id, producer)

    def check(self: Producers, producer_id: int, sequence_id: int, count: int) -> bool:
        repeat = original_check(self, producer_id, sequence_id, count)
        return repeat and producer_id not in self.__dict__.get("_planted_restored", {})

    return _both(replaced(Producers, "restore", restore), replaced(Producers, "check", check))


def dispatch_before_sync() -> AbstractContextManager[None]:
    """Readers see what is applied and not yet durable (rule a)."""
    original = PartitionLog.append

    def append(self: PartitionLog, entry: Any) -> None:
        original(self, entry)
        if isinstance(entry, DataEntry):
            self.durable_end = self.end_offset

    return replaced(PartitionLog, "append", append)


def two_phase_expires() -> AbstractContextManager[None]:
    """A transaction of two-phase commit has the ordinary timeout (KIP-939, Proposed Changes)."""
    original = Shard.new_txn

    def with_timeout(self: Shard, timeout_ms: int, participants: Any, **named: Any) -> Any:
        expires = named.pop("expires", True)
        return original(self, timeout_ms if expires else 500, participants, **named)

    return replaced(Shard, "new_txn", with_timeout)


def takeover_keeps_epoch() -> AbstractContextManager[None]:
    """Who keeps a prepared transaction gets the pair that it has (Skip Epoch Bump)."""

    def keep(
        identity: TransactionalIdMetadata, epochs: Epochs, *, timeout_ms: int, run_time_ms: int
    ) -> TransactionalIdMetadata:
        return replace(identity, next=identity.producer, timeout_ms=timeout_ms)

    return replaced(transactional_id, "keep", keep)


def name_not_stored() -> AbstractContextManager[None]:
    """A commit notes its sequence in memory only."""
    original = TransactionMetadataStore.put_name

    def put_name(self: TransactionMetadataStore, name: NamedSequenceState) -> None:
        if name.open is not None:
            original(self, name)

    return replaced(TransactionMetadataStore, "put_name", put_name)


def identity_not_stored() -> AbstractContextManager[None]:
    """A crash forgets who has begun a transaction."""
    original = TransactionMetadataStore.put_identity

    def put_identity(self: TransactionMetadataStore, identity: TransactionalIdMetadata) -> None:
        if identity.state is not TransactionalIdState.ONGOING:
            original(self, identity)

    return replaced(TransactionMetadataStore, "put_identity", put_identity)


def copies_take_over() -> AbstractContextManager[None]:
    """A late copy of InitProducer takes the id over from the instance that sent it."""
    return replaced(transactional_id, "is_repeated_init", lambda identity, call: False)


def complete_always_commits() -> AbstractContextManager[None]:
    """The SDK does not compare what is prepared with what the database holds."""
    original = TransactionalProducer.complete

    async def complete(self: TransactionalProducer, prepared: PreparedTxnState) -> bool:
        return await original(self, self._prepared)

    return replaced(TransactionalProducer, "complete", complete)


@contextmanager
def _both(*plants: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


def nothing_passed_on() -> AbstractContextManager[None]:
    """An ended transaction lets its followers go, although what it followed is open (rule k)."""
    original = Order.ended

    def ended(self: Order, end: End, _: OpenTransaction | None) -> tuple[TxnID, ...]:
        return original(self, end, None)

    return replaced(Order, "ended", ended)


PLANTED: dict[str, Plant] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        reply_before_durable,
        watermark_not_stored,
        marker_written_twice,
        surplus_sends_kept,
        ack_check_skipped,
        counter_reset,
        mark_delete_past_pending,
        committing_expires,
        dedup_off_after_recovery,
        dispatch_before_sync,
        two_phase_expires,
        takeover_keeps_epoch,
        name_not_stored,
        identity_not_stored,
        complete_always_commits,
        copies_take_over,
        nothing_passed_on,
        *planted_groups.PLANTS,
        *planted_keys.PLANTS,
        *planted_orphans.PLANTS,
    )
}
