"""Records of the coordinator, and the keys of their rows.

    metadata   TxnID, sequence of the record in its transaction   transaction_rows.py
    outcomes   TxnID                                              transaction_rows.py
    identities transactional id                                   IdentityRow
    names      name                                               NameRow
    meta       a name                                             single values

Keys are big-endian, so that scans come in order: a transaction's records in theirs, outcomes by the
age of their transactions. `Shard.apply` takes these records, live and in replay. Pure.
Source: PIP-31, Transaction Log.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from magnetar_coordinator.metadata.named_sequences import NamedSequence, NamedSequenceState
from magnetar_coordinator.metadata.transaction import (
    Counts,
    EndCause,
    Participant,
    TxnOwner,
    TxnStatus,
)
from magnetar_coordinator.metadata.transactional_id import (
    InitCall,
    Pair,
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_coordinator.metadata.wire import (
    put_name,
    put_txn_id,
)
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import TxnID
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
_METADATA_KEY = struct.Struct(">QQI")
_U64 = struct.Struct(">Q")

WIRE_STATUS: Final[dict[TxnStatus, common.TxnStatus]] = {
    TxnStatus.OPEN: common.OPEN,
    TxnStatus.COMMITTING: common.COMMITTING,
    TxnStatus.COMMITTED: common.COMMITTED,
    TxnStatus.ABORTING: common.ABORTING,
    TxnStatus.ABORTED: common.ABORTED,
}


WIRE_CAUSE: Final[dict[EndCause, txn_pb.EndCause]] = {
    EndCause.UNKNOWN: txn_pb.CAUSE_UNKNOWN,
    EndCause.CLIENT: txn_pb.BY_CLIENT,
    EndCause.BY_HAND: txn_pb.BY_HAND,
    EndCause.TIMED_OUT: txn_pb.TIMED_OUT,
    EndCause.TAKEN_OVER: txn_pb.TAKEN_OVER,
    EndCause.MEMBER_EXPELLED: txn_pb.MEMBER_EXPELLED,
    EndCause.RESTORED: txn_pb.RESTORED_FROM_BACKUP,
    EndCause.DECIDED_BEFORE_LOSS: txn_pb.DECIDED_BEFORE_LOSS,
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
    """Record NEW. A timeout of 0: the transaction never expires.

    Attributes:
        ledger_ids: of the participants; none: they are not compared.
    """

    txn_id: TxnID
    timeout_ms: int
    start_run_time_ms: int
    time_ms: int
    participants: tuple[Participant, ...] = ()
    txn_owner: TxnOwner | None = None
    principal: str = ""
    ledger_ids: tuple[int, ...] = ()


class ParticipantsAdded(NamedTuple):
    """Record ADD_PARTITION or ADD_SUBSCRIPTION: new participants, all of the same kind.

    Attributes:
        ledger_ids: as in TxnOpened.
    """

    txn_id: TxnID
    participants: tuple[Participant, ...]
    time_ms: int
    ledger_ids: tuple[int, ...] = ()


class StatusChanged(NamedTuple):
    """Record UPDATE. COMMITTING keeps the arguments of the client's request, and a stamp.

    Attributes:
        traceparent: the span that decided, as W3C's header `traceparent`, so that ends after a
            restart belong to the same trace; empty: the transaction is not traced. No decision uses
            it.
        keep_epoch: its transactional producer goes on with the same pair. Not in the row: that of
            the transactional id has the pair.
    """

    txn_id: TxnID
    expected: TxnStatus
    new: TxnStatus
    time_ms: int
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    fingerprint: str = ""
    stamp: int = NO_STAMP
    traceparent: bytes = b""
    keep_epoch: bool = False


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
    most_bits, least_bits = txn_id
    return _METADATA_KEY.pack(most_bits, least_bits, sequence)


def txn_id_of_key(key: bytes) -> TxnID:
    """Return the TxnID in a key."""
    return TxnID.from_bytes(key[:TXN_ID_BYTES])


def u64(value: int) -> bytes:
    """Encode a 64-bit number."""
    return _U64.pack(value)


def read_u64(value: bytes) -> int:
    """Decode a 64-bit number."""
    return int(_U64.unpack(value)[0])


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
