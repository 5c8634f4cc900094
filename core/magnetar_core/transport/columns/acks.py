"""Acks and their answers, in rows and columns. Pure.

Source: PIP-31, Modified Commands, CommandAck.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple, Self

from magnetar_core.ids import NO_EPOCH, MemberName, MessageId, SubscriptionName, TxnID
from magnetar_core.transport.columns.column import (
    KEPT_MAX,
    NO_TXN,
    Columns,
    Pair,
    Rows,
    divided,
    filled,
    halves_of,
    joined,
    made,
    named,
    pairs_of,
    txn_field,
    txn_ids_of,
    unless_all,
)
from magnetar_core.transport.spliced import Spliced
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.broker_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandAcks,
    CommandAcksResponse,
)

INDIVIDUAL: Final = CommandAck.INDIVIDUAL
# What an ack has beside its ranges: its numbers, its proof and names; and what its answer has.
_ACK_BYTES: Final = 512
_ACKED_BYTES: Final = 32
_PLACE_BYTES: Final = 30
# See Columns.rows_min.
_ACKS_MIN: Final = 5
_ANSWERS_MIN: Final = 3


class Ack(NamedTuple):
    """A CommandAck.

    Attributes:
        ranges: of offsets, from first to last.
        txn_id: None: the ack is plain.
        producer_epoch: NO_EPOCH: there is none.
        member: None: the subscription has no group.
        message_ids: what is acknowledged beside the ranges.
    """

    subscription: SubscriptionName
    consumer_id: int
    ack_type: CommandAck.AckType
    ranges: Sequence[Pair]
    txn_id: TxnID | None = None
    ack_sequence: int = 0
    ledger_id: int = 0
    producer_epoch: int = NO_EPOCH
    member: MemberName | None = None
    is_two_phase_commit: bool = False
    attach_epoch: int = 0
    txn_proof: bytes = b""
    message_ids: Sequence[MessageId] = ()

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return (len(self.ranges) + len(self.message_ids)) * _PLACE_BYTES + _ACK_BYTES

    @classmethod
    def from_wire(cls, wire: CommandAck) -> Self:
        """Convert from the message of a single command."""
        return cls(
            SubscriptionName.from_wire(wire.subscription),
            wire.consumer_id,
            wire.ack_type,
            [(one.first, one.last) for one in wire.ranges],
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            wire.ack_sequence,
            wire.ledger_id,
            wire.producer_epoch if wire.HasField("producer_epoch") else NO_EPOCH,
            MemberName.from_wire(wire.member) if wire.HasField("member") else None,
            wire.two_phase_commit,
            wire.attach_epoch,
            wire.txn_proof,
            [MessageId(one.ledger_id, one.entry_id, one.index) for one in wire.message_ids],
        )

    def to_wire(self) -> Spliced[CommandAck]:
        """Convert to the message of a single command.

        What a consumer says of itself comes again and again, and its bytes are kept.
        """
        pieces = [
            _consumer(self.subscription, self.consumer_id, self.ledger_id, self.member),
        ]
        if self.txn_id is not None:
            pieces.append(txn_field(CommandAck, "txn_id", self.txn_id))
        said = CommandAck()
        for first, last in self.ranges:
            said.ranges.add(first=first, last=last)
        if self.ack_type != INDIVIDUAL:
            said.ack_type = self.ack_type
        if self.ack_sequence:
            said.ack_sequence = self.ack_sequence
        if self.producer_epoch != NO_EPOCH:
            said.producer_epoch = self.producer_epoch
        if self.is_two_phase_commit:
            said.two_phase_commit = True
        if self.attach_epoch:
            said.attach_epoch = self.attach_epoch
        if self.txn_proof:
            said.txn_proof = self.txn_proof
        for one in self.message_ids:
            said.message_ids.append(one.to_wire())
        pieces.append(said.SerializeToString())
        return in_a_row(CommandAck, *pieces)


class Acked(NamedTuple):
    """A CommandAckResponse."""

    consumer_id: int
    txn_id: TxnID | None

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return _ACKED_BYTES

    @classmethod
    def from_wire(cls, wire: CommandAckResponse) -> Self:
        """Convert from the message of a single command."""
        txn_id = TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None
        return tuple.__new__(cls, (wire.consumer_id, txn_id))

    def to_wire(self) -> CommandAckResponse:
        """Convert to the message of a single command."""
        return CommandAckResponse(
            consumer_id=self.consumer_id,
            txn_id=None if self.txn_id is None else self.txn_id.to_wire(),
        )


@lru_cache(maxsize=KEPT_MAX)
def _consumer(
    name: SubscriptionName, consumer_id: int, ledger_id: int, member: MemberName | None
) -> bytes:
    command = CommandAck(
        subscription=name.to_wire(),
        consumer_id=consumer_id,
        ledger_id=ledger_id,
        member=None if member is None else member.to_wire(),
    )
    return command.SerializeToString()


def _pack(rows: Rows) -> CommandAcks:
    (
        names,
        consumer_ids,
        ack_types,
        ranges,
        txn_ids,
        sequences,
        ledger_ids,
        epochs,
        members,
        two_phase_commit,
        attach_epochs,
        proofs,
        message_ids,
    ) = zip(*rows.rows, strict=True)
    indexes = {name: index for index, name in enumerate(dict.fromkeys(names))}
    # The first of them stands for no member.
    member_indexes = {one: index for index, one in enumerate(dict.fromkeys((None, *members)))}
    firsts, lasts = halves_of(joined(ranges))
    most_bits, least_bits = halves_of([one or NO_TXN for one in txn_ids])
    return CommandAcks(
        request_ids=rows.request_ids,
        traceparents=unless_all(b"", rows.traceparents),
        subscriptions=[name.to_wire() for name in indexes],
        subscription_indexes=[indexes[name] for name in names],
        consumer_ids=consumer_ids,
        ack_types=unless_all(INDIVIDUAL, ack_types),
        range_counts=map(len, ranges),
        firsts=firsts,
        lasts=lasts,
        txn_most_bits=unless_all(0, most_bits),
        txn_least_bits=unless_all(0, least_bits),
        ack_sequences=unless_all(0, sequences),
        ledger_ids=unless_all(0, ledger_ids),
        producer_epochs=unless_all(NO_EPOCH, epochs),
        members=[one.to_wire() for one in member_indexes if one is not None],
        member_numbers=unless_all(0, [member_indexes[one] for one in members]),
        two_phase_commit=unless_all(False, two_phase_commit),
        attach_epochs=unless_all(0, attach_epochs),
        txn_proofs=unless_all(b"", proofs),
        message_id_counts=unless_all(0, list(map(len, message_ids))),
        message_ids=[one.to_wire() for one in joined(message_ids)],
    )


def _unpack(message: CommandAcks) -> Rows:
    count = len(message.request_ids)
    names = list(map(SubscriptionName.from_wire, message.subscriptions))
    members = [None, *map(MemberName.from_wire, message.members)]
    ranges = pairs_of(message.firsts, message.lasts)
    message_ids = [MessageId(one.ledger_id, one.entry_id, one.index) for one in message.message_ids]
    return made(
        Ack,
        message.request_ids,
        message.traceparents,
        (
            named(names, message.subscription_indexes),
            message.consumer_ids,
            filled(message.ack_types, INDIVIDUAL, count),
            divided(ranges, message.range_counts),
            txn_ids_of(message.txn_most_bits, message.txn_least_bits, count),
            filled(message.ack_sequences, 0, count),
            filled(message.ledger_ids, 0, count),
            filled(message.producer_epochs, NO_EPOCH, count),
            named(members, message.member_numbers) or repeat(None, count),
            filled(message.two_phase_commit, False, count),
            filled(message.attach_epochs, 0, count),
            filled(message.txn_proofs, b"", count),
            filled(divided(message_ids, message.message_id_counts), (), count),
        ),
    )


def _pack_answers(rows: Rows) -> CommandAcksResponse:
    consumer_ids, txn_ids = zip(*rows.rows, strict=True)
    most_bits, least_bits = halves_of([one or NO_TXN for one in txn_ids])
    return CommandAcksResponse(
        request_ids=rows.request_ids,
        consumer_ids=consumer_ids,
        txn_most_bits=unless_all(0, most_bits),
        txn_least_bits=unless_all(0, least_bits),
    )


def _unpack_answers(message: CommandAcksResponse) -> Rows:
    txn_ids = txn_ids_of(message.txn_most_bits, message.txn_least_bits, len(message.request_ids))
    return made(Acked, message.request_ids, (), (message.consumer_ids, txn_ids))


ACKS = Columns("ack", "acks", Ack, CommandAck, CommandAcks, _pack, _unpack, rows_min=_ACKS_MIN)
ACKED = Columns(
    "ack_response",
    "acks_response",
    Acked,
    CommandAckResponse,
    CommandAcksResponse,
    _pack_answers,
    _unpack_answers,
    rows_min=_ANSWERS_MIN,
)
