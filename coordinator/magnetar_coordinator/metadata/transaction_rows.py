"""Rows of transactions: each transaction writes some of them, so they are packed.

A row is a head of fixed size, then participants, counts, or a digest; then, for few
transactions, a message RecordDetails. Texts have at most 1,000 characters, so that 16 bits tell
their size. The TxnID is in the key alone. Pure.
Source: PIP-31, Transaction Log, TransactionMetadataEntry.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

from magnetar_coordinator.metadata.participant_counts import NAMES_MAX
from magnetar_coordinator.metadata.records import (
    LossAccepted,
    MetadataRecord,
    ParticipantsAdded,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import (
    Participant,
    TxnOwner,
    TxnStatus,
)
from magnetar_coordinator.metadata.transactional_id import Pair
from magnetar_coordinator.metadata.wire import put_identity
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.columns.participants import counts_in
from magnetar_core.wire.record_pb2 import RecordDetails


class _Kind(IntEnum):
    OPENED = 1
    PARTICIPANTS_ADDED = 2
    STATUS_CHANGED = 3
    LOSS_ACCEPTED = 4


# Kind, timeout, run time and time of the beginning, count of participants.
_OPENED = struct.Struct(">BQQqI")
# Kind, time, count of participants.
_ADDED = struct.Struct(">BqI")
# Kind, status before and after, time, stamp, whether counts are given, their size.
_CHANGED = struct.Struct(">BBBqQ?I")
# Kind, time.
_LOSS_ACCEPTED = struct.Struct(">Bq")
# Status, run time and time of the end, time of the beginning, stamp, size of the digest.
_OUTCOME = struct.Struct(">BQqqQH")
# Topic id, partition, whether it is a subscription, sizes of the topic's and its name.
_PARTICIPANT = struct.Struct(">QI?HH")


def encode_metadata(record: MetadataRecord) -> bytes:
    """Encode a record of a live transaction."""
    if isinstance(record, StatusChanged):
        counts = b"".join(record.counts.values()) if record.counts is not None else b""
        head = _CHANGED.pack(
            _Kind.STATUS_CHANGED,
            record.expected,
            record.new,
            record.time_ms,
            record.stamp,
            record.counts is not None,
            len(counts),
        )
        return head + counts + _details_of_change(record)
    if isinstance(record, TxnOpened):
        head = _OPENED.pack(
            _Kind.OPENED,
            record.timeout_ms,
            record.start_run_time_ms,
            record.time_ms,
            len(record.participants),
        )
        details = _details_of_client(record.txn_owner, record.principal, record.ledger_ids)
        return b"".join((head, *map(_packed, record.participants), details))
    if isinstance(record, ParticipantsAdded):
        head = _ADDED.pack(_Kind.PARTICIPANTS_ADDED, record.time_ms, len(record.participants))
        details = _details_of_client(None, "", record.ledger_ids)
        return b"".join((head, *map(_packed, record.participants), details))
    return _LOSS_ACCEPTED.pack(_Kind.LOSS_ACCEPTED, record.time_ms)


def decode_metadata(txn_id: TxnID, row: bytes) -> MetadataRecord:
    """Decode a record that encode_metadata wrote.

    Raises:
        ValueError, IndexError, struct.error, DecodeError: the row is damaged.
    """
    rest = _Rest(row)
    kind = _Kind(row[0])
    if kind is _Kind.STATUS_CHANGED:
        _, expected, new, time_ms, stamp, counts_given, counts_bytes = rest.take(_CHANGED)
        counts = dict(counts_in(rest.cut(counts_bytes)))
        details = rest.details()
        return StatusChanged(
            txn_id,
            TxnStatus(expected),
            TxnStatus(new),
            time_ms,
            counts if counts_given else None,
            tuple(details.selected_writer_ids) if details.selection_given else None,
            details.fingerprint,
            stamp,
            details.traceparent,
        )
    if kind is _Kind.OPENED:
        _, timeout_ms, run_time_ms, time_ms, count = rest.take(_OPENED)
        participants = tuple([rest.participant() for _ in range(count)])
        details = rest.details()
        owner, principal = _client_of(details)
        return TxnOpened(
            txn_id,
            timeout_ms,
            run_time_ms,
            time_ms,
            participants,
            owner,
            principal,
            _ledger_ids_of(details, count),
        )
    if kind is _Kind.PARTICIPANTS_ADDED:
        _, time_ms, count = rest.take(_ADDED)
        participants = tuple([rest.participant() for _ in range(count)])
        ledger_ids = _ledger_ids_of(rest.details(), count)
        return ParticipantsAdded(txn_id, participants, time_ms, ledger_ids)
    _, time_ms = rest.take(_LOSS_ACCEPTED)
    return LossAccepted(txn_id, time_ms)


def encode_outcome(record: TxnEnded) -> bytes:
    """Encode an outcome."""
    digest = record.selection_digest
    head = _OUTCOME.pack(
        record.status,
        record.end_run_time_ms,
        record.end_time_ms,
        record.start_time_ms,
        record.stamp,
        len(digest),
    )
    return head + digest + _details_of_client(record.txn_owner, record.principal)


def decode_outcome(txn_id: TxnID, row: bytes) -> TxnEnded:
    """Decode an outcome that encode_outcome wrote.

    Raises:
        ValueError, struct.error, DecodeError: the row is damaged.
    """
    rest = _Rest(row)
    status, run_time_ms, time_ms, start_time_ms, stamp, digest_bytes = rest.take(_OUTCOME)
    digest = rest.cut(digest_bytes)
    owner, principal = _client_of(rest.details())
    return TxnEnded(
        txn_id,
        TxnStatus(status),
        run_time_ms,
        time_ms,
        digest,
        start_time_ms,
        owner,
        principal,
        stamp,
    )


def end_run_time_ms_of(row: bytes) -> int:
    """Return the run time of the end in an outcome that encode_outcome wrote.

    Raises:
        struct.error: the row is damaged.
    """
    _, run_time_ms, *_ = _OUTCOME.unpack_from(row)
    return int(run_time_ms)


@lru_cache(maxsize=NAMES_MAX)
def _packed(participant: Participant) -> bytes:
    topic = participant.topic.encode()
    is_subscription = isinstance(participant, SubscriptionName)
    name = participant.subscription.encode() if isinstance(participant, SubscriptionName) else b""
    head = _PARTICIPANT.pack(
        participant.topic_id, participant.partition, is_subscription, len(topic), len(name)
    )
    return head + topic + name


def _details_of_client(
    owner: TxnOwner | None, principal: str, ledger_ids: Sequence[int] = ()
) -> bytes:
    if owner is None and not principal and not ledger_ids:
        return b""
    details = RecordDetails(principal=principal, ledger_ids=ledger_ids)
    if owner is not None:
        put_identity(details.identity, *owner)
    return details.SerializeToString()


def _client_of(details: RecordDetails) -> tuple[TxnOwner | None, str]:
    if not details.HasField("identity"):
        return None, details.principal
    identity = details.identity
    pair = Pair(identity.producer_id, identity.producer_epoch)
    return TxnOwner(identity.transactional_id, pair), details.principal


def _ledger_ids_of(details: RecordDetails, count: int) -> tuple[int, ...]:
    found = tuple(details.ledger_ids)
    if found and len(found) != count:
        raise ValueError(f"it has {len(found)} ledger ids for {count} participants")
    return found


def _details_of_change(record: StatusChanged) -> bytes:
    if record.selection is None and not record.fingerprint and not record.traceparent:
        return b""
    return RecordDetails(
        selection_given=record.selection is not None,
        selected_writer_ids=record.selection,
        fingerprint=record.fingerprint,
        traceparent=record.traceparent,
    ).SerializeToString()


class _Rest:
    """The part of a row that was not read yet."""

    def __init__(self, row: bytes) -> None:
        self._row = row
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._row, self._at)
        self._at += layout.size
        return values

    def cut(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._row):
            raise ValueError("its end is missing")
        return self._row[start : self._at]

    def participant(self) -> Participant:
        topic_id, partition, is_subscription, topic_size, name_size = self.take(_PARTICIPANT)
        topic, name = self.cut(topic_size).decode(), self.cut(name_size).decode()
        if is_subscription:
            return SubscriptionName(topic, partition, topic_id, name)
        return PartitionName(topic, partition, topic_id)

    def details(self) -> RecordDetails:
        return RecordDetails.FromString(self._row[self._at :])
