"""Records of the coordinator, and the keys of their rows.

    metadata   TxnID, sequence of the record in its transaction   TransactionMetadataEntry
    outcomes   TxnID                                              TransactionOutcome
    identities transactional id                                   IdentityRow
    names      name                                               NameRow
    meta       a name                                             single values

Keys are big-endian, so that scans come in order: a transaction's records in theirs, outcomes by the
age of their transactions. `Shard.apply` takes these records, live and in replay. Pure.
Source: PIP-31, Transaction Log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from magnetar_coordinator.metadata.named_sequences import NamedSequence, NamedSequenceState
from magnetar_coordinator.metadata.transaction import (
    Counts,
    Participant,
    TxnOwner,
    TxnStatus,
    WriterCounts,
)
from magnetar_coordinator.metadata.transactional_id import (
    InitCall,
    Pair,
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_coordinator.metadata.wire import (
    put_counts,
    put_identity,
    put_name,
    put_partition,
    put_subscription,
    put_txn_id,
)
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as pb
from magnetar_core.wire import transaction_pb2 as txn_pb

METADATA: Final = "metadata"
OUTCOMES: Final = "outcomes"
IDENTITIES: Final = "identities"
NAMES: Final = "names"
META: Final = "meta"
FAMILIES: Final = (METADATA, OUTCOMES, IDENTITIES, NAMES, META)

META_COUNTER: Final = b"counter"
META_NEXT_UNOPENED: Final = b"next_unopened"
META_LOST: Final = b"lost"
META_PRODUCER_ID: Final = b"producer_id"
META_OUTCOME_COUNT: Final = b"outcome_count"
META_RUN_TIME: Final = b"run_time"
META_STAMP_BOUND: Final = b"stamp_bound"
META_INCARNATION: Final = b"incarnation"
META_STORE_TOKEN: Final = b"store_token"
META_TCID: Final = b"tcid"
META_LOSSES: Final = b"losses"
# Until the first start after a restore: what becomes of the transactions that are OPEN.
META_RESTORED: Final = b"restored"

# Bits of a producer id that count; its upper bits are the TCID.
PRODUCER_NUMBER_BITS: Final = 47

TXN_ID_BYTES: Final = 16
_SEQUENCE = struct.Struct(">I")
_U64 = struct.Struct(">Q")

WIRE_STATUS: Final[dict[TxnStatus, common.TxnStatus]] = {
    TxnStatus.OPEN: common.OPEN,
    TxnStatus.COMMITTING: common.COMMITTING,
    TxnStatus.COMMITTED: common.COMMITTED,
    TxnStatus.ABORTING: common.ABORTING,
    TxnStatus.ABORTED: common.ABORTED,
}


WIRE_STATE: Final[dict[TransactionalIdState, txn_pb.TransactionalState]] = {
    TransactionalIdState.EMPTY: txn_pb.EMPTY,
    TransactionalIdState.ONGOING: txn_pb.ONGOING,
    TransactionalIdState.PREPARE_COMMIT: txn_pb.PREPARE_COMMIT,
    TransactionalIdState.PREPARE_ABORT: txn_pb.PREPARE_ABORT,
    TransactionalIdState.COMPLETE_COMMIT: txn_pb.COMPLETE_COMMIT,
    TransactionalIdState.COMPLETE_ABORT: txn_pb.COMPLETE_ABORT,
}


class Restored(IntEnum):
    """Fate of OPEN transactions when a backup was restored."""

    ABORT_ALL = 1
    KEEP_TWO_PHASE = 2


class TxnOpened(NamedTuple):
    """Record NEW. A timeout of 0: the transaction never expires."""

    txn_id: TxnID
    timeout_ms: int
    start_run_time_ms: int
    time_ms: int
    participants: tuple[Participant, ...] = ()
    txn_owner: TxnOwner | None = None
    principal: str = ""


class ParticipantsAdded(NamedTuple):
    """Record ADD_PARTITION or ADD_SUBSCRIPTION: new participants, all of the same kind."""

    txn_id: TxnID
    participants: tuple[Participant, ...]
    time_ms: int


class StatusChanged(NamedTuple):
    """Record UPDATE. COMMITTING keeps the arguments of the client's request, and a stamp."""

    txn_id: TxnID
    expected: TxnStatus
    new: TxnStatus
    time_ms: int
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    fingerprint: str = ""
    stamp: int = NO_STAMP


class LossAccepted(NamedTuple):
    """Record ACCEPT_LOSS."""

    txn_id: TxnID
    time_ms: int


class TxnEnded(NamedTuple):
    """Record of an outcome: every participant has ended, and it replaces all other records."""

    txn_id: TxnID
    status: TxnStatus
    end_run_time_ms: int
    end_time_ms: int
    selection_digest: bytes
    start_time_ms: int = 0
    txn_owner: TxnOwner | None = None
    principal: str = ""
    stamp: int = NO_STAMP


MetadataRecord: TypeAlias = TxnOpened | ParticipantsAdded | StatusChanged | LossAccepted
Record: TypeAlias = MetadataRecord | TxnEnded


def metadata_key(txn_id: TxnID, sequence: int) -> bytes:
    """Return the key of a transaction's record."""
    return txn_id.to_bytes() + _SEQUENCE.pack(sequence)


def txn_id_of_key(key: bytes) -> TxnID:
    """Return the TxnID in a key."""
    return TxnID.from_bytes(key[:TXN_ID_BYTES])


def u64(value: int) -> bytes:
    """Encode a 64-bit number."""
    return _U64.pack(value)


def read_u64(value: bytes) -> int:
    """Decode a 64-bit number."""
    return int(_U64.unpack(value)[0])


def encode_metadata(record: MetadataRecord, traceparent: bytes = b"") -> bytes:
    """Encode a record as TransactionMetadataEntry. PIP-31, Transaction Log.

    Args:
        traceparent: the span that decided; empty: the transaction is not traced.
    """
    # The key holds the TxnID; the entry holds it too because PIP-31's format has it.
    entry = pb.TransactionMetadataEntry(last_modification_time_ms=record.time_ms)
    put_txn_id(entry.txn_id, record.txn_id)
    if isinstance(record, TxnOpened):
        entry.metadata_op = pb.NEW
        entry.new_status = common.OPEN
        entry.txn_timeout_ms = record.timeout_ms
        entry.start_run_time_ms = record.start_run_time_ms
        entry.start_time_ms = record.time_ms
        entry.principal = record.principal
        _put_participants(entry, record.participants)
        if record.txn_owner is not None:
            entry.identity.transactional_id = record.txn_owner.transactional_id
            entry.identity.producer_id, entry.identity.producer_epoch = record.txn_owner.pair
    elif isinstance(record, ParticipantsAdded):
        is_partition = isinstance(record.participants[0], PartitionName)
        entry.metadata_op = pb.ADD_PARTITION if is_partition else pb.ADD_SUBSCRIPTION
        _put_participants(entry, record.participants)
    elif isinstance(record, StatusChanged):
        entry.metadata_op = pb.UPDATE
        entry.expected_status = WIRE_STATUS[record.expected]
        entry.new_status = WIRE_STATUS[record.new]
        if record.counts is not None:
            entry.counts_given = True
            _put_counts(entry, record.counts)
        if record.selection is not None:
            entry.selection_given = True
            entry.selected_writer_ids.extend(record.selection)
        entry.fingerprint = record.fingerprint
        entry.stamp = record.stamp
        entry.traceparent = traceparent
    else:
        entry.metadata_op = pb.ACCEPT_LOSS
    return entry.SerializeToString()


def decode_metadata(value: bytes) -> MetadataRecord:
    """Decode a record that encode_metadata wrote."""
    return record_of(pb.TransactionMetadataEntry.FromString(value))


def record_of(entry: pb.TransactionMetadataEntry) -> MetadataRecord:
    """Return the record in an entry."""
    txn_id = TxnID.from_wire(entry.txn_id)
    time_ms = entry.last_modification_time_ms
    if entry.metadata_op == pb.NEW:
        return TxnOpened(
            txn_id,
            entry.txn_timeout_ms,
            entry.start_run_time_ms,
            entry.start_time_ms,
            _participants(entry),
            _txn_owner(entry),
            entry.principal,
        )
    if entry.metadata_op in (pb.ADD_PARTITION, pb.ADD_SUBSCRIPTION):
        return ParticipantsAdded(txn_id, _participants(entry), time_ms)
    if entry.metadata_op == pb.UPDATE:
        return StatusChanged(
            txn_id,
            TxnStatus(entry.expected_status),
            TxnStatus(entry.new_status),
            time_ms,
            _counts(entry) if entry.counts_given else None,
            tuple(entry.selected_writer_ids) if entry.selection_given else None,
            entry.fingerprint,
            entry.stamp,
        )
    if entry.metadata_op != pb.ACCEPT_LOSS:
        raise BrokenInvariant(f"unknown record {entry.metadata_op}")
    return LossAccepted(txn_id, time_ms)


def encode_outcome(record: TxnEnded) -> bytes:
    """Encode an outcome."""
    outcome = pb.TransactionOutcome(
        status=WIRE_STATUS[record.status],
        end_run_time_ms=record.end_run_time_ms,
        end_time_ms=record.end_time_ms,
        selection_digest=record.selection_digest,
        start_time_ms=record.start_time_ms,
        principal=record.principal,
        stamp=record.stamp,
    )
    if record.txn_owner is not None:
        put_identity(outcome.identity, *record.txn_owner)
    return outcome.SerializeToString()


def decode_outcome(txn_id: TxnID, value: bytes) -> TxnEnded:
    """Decode an outcome."""
    outcome = pb.TransactionOutcome.FromString(value)
    return TxnEnded(
        txn_id,
        TxnStatus(outcome.status),
        outcome.end_run_time_ms,
        outcome.end_time_ms,
        outcome.selection_digest,
        outcome.start_time_ms,
        _txn_owner(outcome),
        outcome.principal,
        outcome.stamp,
    )


def encode_identity(identity: TransactionalIdMetadata) -> bytes:
    """Encode a transactional id. KIP-939, TransactionLogValue."""
    row = pb.IdentityRow(
        producer_id=identity.producer.producer_id,
        producer_epoch=identity.producer.epoch,
        prev_producer_id=identity.prev.producer_id,
        prev_producer_epoch=identity.prev.epoch,
        next_producer_id=identity.next.producer_id,
        next_producer_epoch=identity.next.epoch,
        txn_timeout_ms=identity.timeout_ms,
        state=WIRE_STATE[identity.state],
        two_phase_commit=identity.two_phase_commit,
        last_used_run_time_ms=identity.last_used_run_time_ms,
    )
    if identity.txn_id is not None:
        put_txn_id(row.txn_id, identity.txn_id)
    call = identity.last_init
    if call is not None:
        row.last_init.token = call.token
        row.last_init.named_producer_id, row.last_init.named_producer_epoch = call.named
        row.last_init.given_producer_id, row.last_init.given_producer_epoch = call.given
    row.past_call_tokens.extend(identity.past_call_tokens)
    return row.SerializeToString()


def decode_identity(transactional_id: str, value: bytes) -> TransactionalIdMetadata:
    """Decode a transactional id."""
    row = pb.IdentityRow.FromString(value)
    return TransactionalIdMetadata(
        transactional_id=transactional_id,
        state=TransactionalIdState(row.state),
        producer=Pair(row.producer_id, row.producer_epoch),
        prev=Pair(row.prev_producer_id, row.prev_producer_epoch),
        next=Pair(row.next_producer_id, row.next_producer_epoch),
        timeout_ms=row.txn_timeout_ms,
        txn_id=TxnID.from_wire(row.txn_id) if row.HasField("txn_id") else None,
        last_used_run_time_ms=row.last_used_run_time_ms,
        last_init=_init_call(row.last_init) if row.HasField("last_init") else None,
        past_call_tokens=tuple(row.past_call_tokens),
    )


def _init_call(wire: pb.InitCall) -> InitCall:
    return InitCall(
        wire.token,
        Pair(wire.named_producer_id, wire.named_producer_epoch),
        Pair(wire.given_producer_id, wire.given_producer_epoch),
    )


def encode_name(name: NamedSequenceState) -> bytes:
    """Encode a named sequence."""
    row = pb.NameRow()
    put_name(row, name)
    return row.SerializeToString()


def decode_name(name: str, value: bytes) -> NamedSequenceState:
    """Decode a named sequence."""
    row = pb.NameRow.FromString(value)
    committed = row.committed_sequence if row.has_committed else None
    fingerprint = row.committed_fingerprint
    if not row.HasField("open"):
        return NamedSequenceState(name, committed, fingerprint=fingerprint)
    opened = NamedSequence(
        row.open.name, row.open.sequence, row.open.run_token, row.open.fingerprint
    )
    return NamedSequenceState(
        name, committed, opened, TxnID.from_wire(row.open_txn_id), fingerprint
    )


def writer_counts(counts: Iterable[txn_pb.WriterCount]) -> WriterCounts:
    """Convert the wire's counts to pairs."""
    return tuple((count.writer_id, count.count) for count in counts)


def _put_participants(
    entry: pb.TransactionMetadataEntry, participants: Iterable[Participant]
) -> None:
    for participant in participants:
        if isinstance(participant, PartitionName):
            put_partition(entry.partitions.add(), participant)
        else:
            put_subscription(entry.subscriptions.add(), participant)


def _participants(entry: pb.TransactionMetadataEntry) -> tuple[Participant, ...]:
    return (
        *(PartitionName.from_wire(one) for one in entry.partitions),
        *(SubscriptionName.from_wire(one) for one in entry.subscriptions),
    )


def _txn_owner(entry: pb.TransactionMetadataEntry | pb.TransactionOutcome) -> TxnOwner | None:
    if not entry.HasField("identity"):
        return None
    identity = entry.identity
    return TxnOwner(identity.transactional_id, Pair(identity.producer_id, identity.producer_epoch))


def _put_counts(entry: pb.TransactionMetadataEntry, counts: Counts) -> None:
    for participant, pairs in counts.items():
        if isinstance(participant, PartitionName):
            produced = entry.partition_counts.add()
            put_partition(produced.partition, participant)
            put_counts(produced.producers, pairs)
        else:
            acked = entry.subscription_counts.add()
            put_subscription(acked.subscription, participant)
            put_counts(acked.consumers, pairs)


def _counts(entry: pb.TransactionMetadataEntry) -> Counts:
    counts: dict[Participant, WriterCounts] = {}
    for partition in entry.partition_counts:
        counts[PartitionName.from_wire(partition.partition)] = writer_counts(partition.producers)
    for subscription in entry.subscription_counts:
        name = SubscriptionName.from_wire(subscription.subscription)
        counts[name] = writer_counts(subscription.consumers)
    return counts
