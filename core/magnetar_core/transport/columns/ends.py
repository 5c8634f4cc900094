"""Ends of transactions at participants, and their answers, in rows and columns. Pure.

Source: PIP-31, CommandEndTxnOnPartition and CommandEndTxnOnSubscription.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple, Self

from google.protobuf.message import DecodeError

from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.columns.column import (
    Columns,
    Rows,
    divided,
    filled,
    halves_of,
    joined,
    made,
    named,
    pairs_of,
    txn_field,
    unless_all,
    zipped,
)
from magnetar_core.transport.spliced import Spliced, field_start
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.common_pb2 import COMMIT, TxnAction
from magnetar_core.wire.packed_pb2 import PackedEndTxn
from magnetar_core.wire.transaction_pb2 import (
    CommandEndTxnOnParticipants,
    CommandEndTxnOnParticipantsResponse,
    CommandEndTxnsOnParticipants,
    CommandEndTxnsOnParticipantsResponse,
    UnfinishedParticipant,
)

# What an end has beside its participants and a selection, and each of those at most.
_END_BYTES: Final = 128
_WRITER_ID_BYTES: Final = 10
# See Columns.rows_min.
_ENDS_MIN: Final = 4
_ANSWERS_MIN: Final = 3
# Participants that are kept, with their counts. The same ones come again and again, since most
# transactions of a producer write one batch.
_KNOWN_PARTICIPANTS_MAX: Final = 4_000
_KNOWN_BYTES_MAX: Final = 256

# A participant, and the confirmed writes of each writer. The same object comes again: it is not
# changed.
Counted = tuple[PartitionName | SubscriptionName, Mapping[int, int], int]


class EndOnParticipants(NamedTuple):
    """A CommandEndTxnOnParticipants.

    Attributes:
        participants: each with its counts, as counted() reads it.
        are_counted: whether the counts are given.
        selection: the writers that count; None: all.
        incarnation: of the coordinator's store; 0: none sends it.
    """

    txn_id: TxnID
    txn_action: TxnAction
    participants: Sequence[bytes]
    are_counted: bool
    stamp: int = 0
    incarnation: int = 0
    is_loss_accepted: bool = False
    selection: Sequence[int] | None = None

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        selected = len(self.selection or ()) * _WRITER_ID_BYTES
        return sum(map(len, self.participants)) + selected + _END_BYTES

    @classmethod
    def from_wire(cls, wire: CommandEndTxnOnParticipants) -> Self:
        """Convert from the message of a single command."""
        # As bytes: protobuf's objects would cost several times as much.
        view = PackedEndTxn.FromString(wire.SerializeToString())
        return cls(
            TxnID.from_wire(wire.txn_id),
            wire.txn_action,
            [
                *[participant("partitions", one) for one in view.partition_counts[:]],
                *[participant("subscriptions", one) for one in view.subscription_counts[:]],
            ],
            wire.counts_given,
            wire.stamp,
            wire.incarnation,
            wire.loss_accepted,
            wire.selected_writer_ids[:] if wire.selection_given else None,
        )

    def to_wire(self) -> Spliced[CommandEndTxnOnParticipants]:
        """Convert to the message of a single command."""
        rest = CommandEndTxnOnParticipants(
            txn_action=self.txn_action,
            counts_given=self.are_counted,
            stamp=self.stamp,
            incarnation=self.incarnation,
        )
        if self.is_loss_accepted:
            rest.loss_accepted = True
        if self.selection is not None:
            rest.selection_given = True
            rest.selected_writer_ids.extend(self.selection)
        return in_a_row(
            CommandEndTxnOnParticipants,
            txn_field(CommandEndTxnOnParticipants, "txn_id", self.txn_id),
            *self.participants,
            rest.SerializeToString(),
        )


class EndedOnParticipants(NamedTuple):
    """A CommandEndTxnOnParticipantsResponse."""

    txn_id: TxnID
    unfinished: Sequence[UnfinishedParticipant]

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return sum([one.ByteSize() for one in self.unfinished], _END_BYTES)

    @classmethod
    def from_wire(cls, wire: CommandEndTxnOnParticipantsResponse) -> Self:
        """Convert from the message of a single command."""
        return cls(TxnID.from_wire(wire.txn_id), list(wire.unfinished))

    def to_wire(self) -> CommandEndTxnOnParticipantsResponse:
        """Convert to the message of a single command."""
        answer = CommandEndTxnOnParticipantsResponse(unfinished=self.unfinished)
        answer.txn_id.most_bits, answer.txn_id.least_bits = self.txn_id
        return answer


def participant(field: str, counts: bytes) -> bytes:
    """Return a participant with its counts, as rows have it.

    Args:
        field: of CommandEndTxnOnParticipants: partitions or subscriptions.
        counts: the message that this field has, serialized.
    """
    return field_start(CommandEndTxnOnParticipants, field, len(counts)) + counts


def counted(participant: bytes) -> Counted:
    """Return a participant, its counts, and the ledger id that it had; 0: not compared.

    Raises:
        DecodeError: it is damaged, or not one.
    """
    if len(participant) <= _KNOWN_BYTES_MAX:
        return _counted(participant)
    return _counted.__wrapped__(participant)


@lru_cache(maxsize=_KNOWN_PARTICIPANTS_MAX)
def _counted(participant: bytes) -> Counted:
    wire = CommandEndTxnOnParticipants.FromString(participant)
    if len(wire.partitions) + len(wire.subscriptions) != 1:
        raise DecodeError("not one participant")
    for produced in wire.partitions:
        counts = {one.writer_id: one.count for one in produced.producers}
        return PartitionName.from_wire(produced.partition), counts, produced.ledger_id
    (acked,) = wire.subscriptions
    counts = {one.writer_id: one.count for one in acked.consumers}
    return SubscriptionName.from_wire(acked.subscription), counts, acked.ledger_id


def _pack(rows: Rows) -> CommandEndTxnsOnParticipants:
    txn_ids, actions, participants, are_counted, stamps, incarnations, losses, selections = zip(
        *rows.rows, strict=True
    )
    most_bits, least_bits = halves_of(txn_ids)
    every = joined(participants)
    indexes = {one: index for index, one in enumerate(dict.fromkeys(every))}
    return CommandEndTxnsOnParticipants(
        request_ids=rows.request_ids,
        traceparents=unless_all(b"", rows.traceparents),
        txn_most_bits=most_bits,
        txn_least_bits=least_bits,
        txn_actions=unless_all(COMMIT, actions),
        participants=indexes,
        participant_counts=map(len, participants),
        participant_indexes=[indexes[one] for one in every],
        counts_given=unless_all(False, are_counted),
        stamps=unless_all(0, stamps),
        incarnations=unless_all(0, incarnations),
        loss_accepted=unless_all(False, losses),
        selections_given=unless_all(False, [one is not None for one in selections]),
        selection_counts=unless_all(0, [len(one or ()) for one in selections]),
        selected_writer_ids=joined(one or () for one in selections),
    )


def _unpack(message: CommandEndTxnsOnParticipants) -> Rows:
    participants = list(message.participants)
    for one in participants:
        counted(one)
    count = len(message.request_ids)
    every = named(participants, message.participant_indexes)
    selected = divided(message.selected_writer_ids, message.selection_counts)
    return made(
        EndOnParticipants,
        message.request_ids,
        message.traceparents,
        (
            _txn_ids_of(message),
            filled(message.txn_actions, COMMIT, count),
            divided(every, message.participant_counts),
            filled(message.counts_given, False, count),
            filled(message.stamps, 0, count),
            filled(message.incarnations, 0, count),
            filled(message.loss_accepted, False, count),
            [
                writers if is_given else None
                for writers, is_given in zipped(
                    filled(selected, (), count), filled(message.selections_given, False, count)
                )
            ],
        ),
    )


def _txn_ids_of(
    message: CommandEndTxnsOnParticipants | CommandEndTxnsOnParticipantsResponse,
) -> list[TxnID]:
    pairs = pairs_of(message.txn_most_bits, message.txn_least_bits)
    return list(map(partial(tuple.__new__, TxnID), pairs))


def _pack_answers(rows: Rows) -> CommandEndTxnsOnParticipantsResponse:
    txn_ids, unfinished = zip(*rows.rows, strict=True)
    most_bits, least_bits = halves_of(txn_ids)
    return CommandEndTxnsOnParticipantsResponse(
        request_ids=rows.request_ids,
        txn_most_bits=most_bits,
        txn_least_bits=least_bits,
        unfinished_counts=unless_all(0, list(map(len, unfinished))),
        unfinished=joined(unfinished),
    )


def _unpack_answers(message: CommandEndTxnsOnParticipantsResponse) -> Rows:
    unfinished = divided(message.unfinished, message.unfinished_counts)
    return made(
        EndedOnParticipants,
        message.request_ids,
        (),
        (
            _txn_ids_of(message),
            filled(unfinished, (), len(message.request_ids)),
        ),
    )


ENDS = Columns(
    "end_txn_on_participants",
    "end_txns_on_participants",
    EndOnParticipants,
    CommandEndTxnOnParticipants,
    CommandEndTxnsOnParticipants,
    _pack,
    _unpack,
    rows_min=_ENDS_MIN,
)
ENDED = Columns(
    "end_txn_on_participants_response",
    "end_txns_on_participants_response",
    EndedOnParticipants,
    CommandEndTxnOnParticipantsResponse,
    CommandEndTxnsOnParticipantsResponse,
    _pack_answers,
    _unpack_answers,
    rows_min=_ANSWERS_MIN,
)
