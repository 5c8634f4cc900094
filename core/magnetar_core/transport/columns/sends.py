"""Sends and their answers, in rows and columns. Pure.

Source: PIP-31, Modified Commands, CommandSend.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple, Self

from magnetar_core.ids import NO_EPOCH, MessageId, PartitionName, TxnID
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
from magnetar_core.transport.spliced import Spliced, field_start, spliced
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.broker_pb2 import (
    CommandSend,
    CommandSendResponse,
    CommandSends,
    CommandSendsResponse,
)
from magnetar_core.wire.common_pb2 import TxnId

# What a send has beside its batch and what it follows: its numbers, its proof, and a name; and what
# its answer has.
_SEND_BYTES: Final = 512
_SENT_BYTES: Final = 32
_PAIR_BYTES: Final = 20
# See Columns.rows_min. A column costs nearly the same for few rows, and sends have more of them.
_SENDS_MIN: Final = 5
_ANSWERS_MIN: Final = 3
# Where a batch lies of which the broker has forgotten that.
NOWHERE: Final = MessageId(0, 0, 0)


class Send(NamedTuple):
    """A CommandSend.

    Attributes:
        txn_id: None: the send is plain.
        follows: the transactions that it comes after.
        producer_epoch: NO_EPOCH: there is none.
    """

    partition: PartitionName
    producer_id: int
    sequence_id: int
    num_messages: int
    batch: bytes
    txn_id: TxnID | None = None
    follows: Sequence[Pair] = ()
    producer_epoch: int = NO_EPOCH
    txn_proof: bytes = b""

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return len(self.batch) + len(self.follows) * _PAIR_BYTES + _SEND_BYTES

    @classmethod
    def from_wire(cls, wire: CommandSend) -> Self:
        """Convert from the message of a single command."""
        return cls(
            PartitionName.from_wire(wire.partition),
            wire.producer_id,
            wire.sequence_id,
            wire.num_messages,
            wire.batch,
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            [(one.most_bits, one.least_bits) for one in wire.follows_txn_ids],
            wire.producer_epoch if wire.HasField("producer_epoch") else NO_EPOCH,
            wire.txn_proof,
        )

    def to_wire(self) -> Spliced[CommandSend]:
        """Convert to the message of a single command.

        Names, TxnIDs and small numbers come again and again, and their bytes are kept: protobuf's
        objects for them would cost several times the rest.
        """
        name, producer_id, sequence_id, count, batch, txn_id, follows, epoch, proof = self
        pieces = [_name(name), _numbers(producer_id, sequence_id, count)]
        if txn_id is not None:
            pieces.append(txn_field(CommandSend, "txn_id", txn_id))
        if follows:
            pieces += [txn_field(CommandSend, "follows_txn_ids", one) for one in follows]
        if epoch != NO_EPOCH or proof:
            said = CommandSend(producer_epoch=None if epoch == NO_EPOCH else epoch, txn_proof=proof)
            pieces.append(said.SerializeToString())
        pieces += (field_start(CommandSend, "batch", len(batch)), batch)
        return in_a_row(CommandSend, *pieces)


class Sent(NamedTuple):
    """A CommandSendResponse.

    Attributes:
        message_id: NOWHERE for a plain batch of which the broker has forgotten where it lies.
        settled: of the transactions that the send follows, those that need not be named again.
        all_settled: in place of `settled`: none of them has to be.
    """

    message_id: MessageId
    duplicate: bool = False
    all_settled: bool = False
    settled: Sequence[Pair] = ()

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return len(self.settled) * _PAIR_BYTES + _SENT_BYTES

    @classmethod
    def from_wire(cls, wire: CommandSendResponse) -> Self:
        """Convert from the message of a single command."""
        place = wire.message_id
        settled = [(one.most_bits, one.least_bits) for one in wire.settled_txn_ids]
        return tuple.__new__(
            cls,
            (
                tuple.__new__(MessageId, (place.ledger_id, place.entry_id, place.index, 0)),
                wire.duplicate,
                wire.all_settled,
                settled,
            ),
        )

    def to_wire(self) -> CommandSendResponse:
        """Convert to the message of a single command."""
        answer = CommandSendResponse()
        if any(self.message_id):
            place = answer.message_id
            place.ledger_id, place.entry_id, place.index, _ = self.message_id
        if self.duplicate:
            answer.duplicate = True
        if self.all_settled:
            answer.all_settled = True
        if self.settled:
            answer.settled_txn_ids.extend(map(_txn_id, self.settled))
        return answer


@lru_cache(maxsize=KEPT_MAX)
def _name(partition: PartitionName) -> bytes:
    return CommandSend(partition=partition.to_wire()).SerializeToString()


@lru_cache(maxsize=KEPT_MAX)
def _numbers(producer_id: int, sequence_id: int, count: int) -> bytes:
    command = CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=count)
    return command.SerializeToString()


def _txn_id(pair: Pair) -> TxnId:
    return TxnId(most_bits=pair[0], least_bits=pair[1])


def _pack(rows: Rows) -> Spliced[CommandSends]:
    (names, producer_ids, sequence_ids, counts, batches, txn_ids, follows, epochs, proofs) = zip(
        *rows.rows, strict=True
    )
    indexes = {name: index for index, name in enumerate(dict.fromkeys(names))}
    message = CommandSends(
        request_ids=rows.request_ids,
        traceparents=unless_all(b"", rows.traceparents),
        partitions=[name.to_wire() for name in indexes],
        partition_indexes=[indexes[name] for name in names],
        producer_ids=producer_ids,
        sequence_ids=unless_all(0, sequence_ids),
        num_messages=counts,
        producer_epochs=unless_all(NO_EPOCH, epochs),
        txn_proofs=unless_all(b"", proofs),
    )
    if any(txn_ids):
        most_bits, least_bits = halves_of([one or NO_TXN for one in txn_ids])
        message.txn_most_bits.extend(most_bits)
        message.txn_least_bits.extend(least_bits)
    if any(follows):
        most_bits, least_bits = halves_of(joined(follows))
        message.follows_counts.extend(map(len, follows))
        message.follows_most_bits.extend(most_bits)
        message.follows_least_bits.extend(least_bits)
    return spliced(message, "batches", batches)


def _unpack(message: CommandSends) -> Rows:
    names = list(map(PartitionName.from_wire, message.partitions))
    count = len(message.request_ids)
    follows = pairs_of(message.follows_most_bits, message.follows_least_bits)
    return made(
        Send,
        message.request_ids,
        message.traceparents,
        (
            named(names, message.partition_indexes),
            message.producer_ids,
            filled(message.sequence_ids, 0, count),
            message.num_messages,
            message.batches,
            txn_ids_of(message.txn_most_bits, message.txn_least_bits, count),
            filled(divided(follows, message.follows_counts), (), count),
            filled(message.producer_epochs, NO_EPOCH, count),
            filled(message.txn_proofs, b"", count),
        ),
    )


def _pack_answers(rows: Rows) -> CommandSendsResponse:
    places, duplicates, all_settled, settled = zip(*rows.rows, strict=True)
    ledger_ids, entry_ids, indexes, _ = zip(*places, strict=True)
    message = CommandSendsResponse(
        request_ids=rows.request_ids,
        ledger_ids=unless_all(0, ledger_ids),
        entry_ids=unless_all(0, entry_ids),
        indexes=unless_all(0, indexes),
        duplicates=unless_all(False, duplicates),
        all_settled=unless_all(False, all_settled),
    )
    if any(settled):
        most_bits, least_bits = halves_of(joined(settled))
        message.settled_counts.extend(map(len, settled))
        message.settled_most_bits.extend(most_bits)
        message.settled_least_bits.extend(least_bits)
    return message


def _unpack_answers(message: CommandSendsResponse) -> Rows:
    count = len(message.request_ids)
    settled = pairs_of(message.settled_most_bits, message.settled_least_bits)
    places = made(
        MessageId,
        message.request_ids,
        (),
        (
            filled(message.ledger_ids, 0, count),
            filled(message.entry_ids, 0, count),
            filled(message.indexes, 0, count),
            repeat(0, count),
        ),
    )
    return made(
        Sent,
        message.request_ids,
        (),
        (
            places.rows,
            filled(message.duplicates, False, count),
            filled(message.all_settled, False, count),
            filled(divided(settled, message.settled_counts), (), count),
        ),
    )


SENDS = Columns(
    "send", "sends", Send, CommandSend, CommandSends, _pack, _unpack, rows_min=_SENDS_MIN
)
SENT = Columns(
    "send_response",
    "sends_response",
    Sent,
    CommandSendResponse,
    CommandSendsResponse,
    _pack_answers,
    _unpack_answers,
    rows_min=_ANSWERS_MIN,
)
