"""Beginnings of transactions at their coordinator, and the answers. Pure.

Source: PIP-31, CommandNewTxn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from magnetar_core.ids import Participant, TxnID
from magnetar_core.transport.columns.column import (
    NO_TXN,
    AnswerColumns,
    Answers,
    Columns,
    Rows,
    answers_made,
    divided,
    filled,
    halves_of,
    joined,
    made,
    named,
    numbered,
    numbers_of,
    pairs_of,
    txn_ids_of,
    unless_all,
)
from magnetar_core.transport.columns.participants import (
    participant_field,
    participant_in,
    partition_in,
    subscription_in,
)
from magnetar_core.transport.spliced import Spliced
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.common_pb2 import (
    ProducerIdentity,
)
from magnetar_core.wire.packed_pb2 import PackedNewTxn
from magnetar_core.wire.transaction_pb2 import (
    CommandNewTxn,
    CommandNewTxnResponse,
    CommandNewTxns,
    CommandNewTxnsResponse,
    NamedSequence,
)

# What a beginning has beside its participants and an identity or a named sequence, and each
# participant and its ledger id, at most.
_NEW_BYTES: Final = 128
_PARTICIPANT_BYTES: Final = 64
_LEDGER_ID_BYTES: Final = 10
# See Columns.rows_min.
_ROWS_MIN: Final = 4
# What an answer has beside a proof or an identity.
_ANSWER_BYTES: Final = 64
# Without the constructor of a NamedTuple, which is a Python function.
_TXN_ID: Final = partial(tuple.__new__, TxnID)


class NewTxn(NamedTuple):
    """A CommandNewTxn.

    Attributes:
        txn_timeout_ms: 0: the coordinator's default.
        participants: the first ones, partitions before subscriptions.
        identity: of a transactional producer; None: there is none.
        named_sequence: None: there is none.
        call_token: 0: there is none.
        seen_stamp: 0: there is none.
        follows_given: whether it may only begin behind the transaction `follows`.
        follows: the latest one of the identity; None: it has had none.
        ledger_ids: those that the participants have, in their order; empty: not compared.
    """

    txn_timeout_ms: int = 0
    participants: Sequence[Participant] = ()
    identity: ProducerIdentity | None = None
    named_sequence: NamedSequence | None = None
    call_token: int = 0
    answer_before_durable: bool = False
    seen_stamp: int = 0
    follows_given: bool = False
    follows: TxnID | None = None
    ledger_ids: Sequence[int] = ()

    @property
    def byte_count(self) -> int:
        """About the most bytes that it takes in columns."""
        size = len(self.participants) * _PARTICIPANT_BYTES + _NEW_BYTES
        size += len(self.ledger_ids) * _LEDGER_ID_BYTES
        if self.identity is not None:
            size += self.identity.ByteSize()
        if self.named_sequence is not None:
            size += self.named_sequence.ByteSize()
        return size

    @classmethod
    def from_wire(cls, wire: CommandNewTxn) -> Self:
        """Convert from the message of a single command."""
        # As bytes, whose names are known: protobuf's objects would cost several times as much.
        view = PackedNewTxn.FromString(wire.SerializeToString())
        return cls(
            wire.txn_timeout_ms,
            # A slice is a list, and costs a third of an iterator of protobuf's.
            (*map(partition_in, view.partitions[:]), *map(subscription_in, view.subscriptions[:])),
            wire.identity if wire.HasField("identity") else None,
            wire.named_sequence if wire.HasField("named_sequence") else None,
            wire.call_token,
            wire.answer_before_durable,
            wire.seen_stamp,
            wire.follows_given,
            TxnID.from_wire(wire.follows_txn_id) if wire.HasField("follows_txn_id") else None,
            wire.ledger_ids[:],
        )

    def to_wire(self) -> Spliced[CommandNewTxn]:
        """Convert to the message of a single command."""
        rest = CommandNewTxn(
            txn_timeout_ms=self.txn_timeout_ms,
            identity=self.identity,
            named_sequence=self.named_sequence,
            call_token=self.call_token,
            answer_before_durable=self.answer_before_durable,
            seen_stamp=self.seen_stamp,
            follows_given=self.follows_given,
            follows_txn_id=None if self.follows is None else self.follows.to_wire(),
            ledger_ids=self.ledger_ids,
        )
        names = map(participant_field, self.participants)
        return in_a_row(CommandNewTxn, rest.SerializeToString(), *names)


class Opened(NamedTuple):
    """A CommandNewTxnResponse.

    Attributes:
        txn_proof: empty: the servers ask for none.
    """

    txn_id: TxnID
    txn_timeout_ms: int
    txn_proof: bytes = b""

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return len(self.txn_proof) + _ANSWER_BYTES

    @classmethod
    def from_wire(cls, wire: CommandNewTxnResponse) -> Self:
        """Convert from the message of a single command."""
        return cls(TxnID.from_wire(wire.txn_id), wire.txn_timeout_ms, wire.txn_proof)

    def to_wire(self) -> CommandNewTxnResponse:
        """Convert to the message of a single command."""
        answer = CommandNewTxnResponse(txn_timeout_ms=self.txn_timeout_ms, txn_proof=self.txn_proof)
        # In place: a message that is given to the constructor is serialized and parsed.
        txn_id = answer.txn_id
        txn_id.most_bits, txn_id.least_bits = self.txn_id
        return answer


def _pack_new(rows: Rows) -> CommandNewTxns:
    columns = zip(*rows.rows, strict=True)
    timeouts_ms, participants, identities, sequences, tokens, early, stamps, *rest = columns
    follows_given, follows, ledger_ids = rest
    every = joined(participants)
    most_bits, least_bits = halves_of([one or NO_TXN for one in follows])
    indexes = {name: index for index, name in enumerate(dict.fromkeys(every))}
    return CommandNewTxns(
        request_ids=rows.request_ids,
        traceparents=unless_all(b"", rows.traceparents),
        txn_timeouts_ms=unless_all(0, timeouts_ms),
        participants=map(participant_field, indexes),
        participant_counts=unless_all(0, list(map(len, participants))),
        participant_indexes=[indexes[name] for name in every],
        identities=[one for one in identities if one is not None],
        identity_numbers=numbers_of(identities),
        named_sequences=[one for one in sequences if one is not None],
        named_sequence_numbers=numbers_of(sequences),
        call_tokens=unless_all(0, tokens),
        answers_before_durable=unless_all(False, early),
        seen_stamps=unless_all(0, stamps),
        follows_given=unless_all(False, follows_given),
        follows_most_bits=unless_all(0, most_bits),
        follows_least_bits=unless_all(0, least_bits),
        ledger_id_counts=unless_all(0, list(map(len, ledger_ids))),
        ledger_ids=joined(ledger_ids),
    )


def _unpack_new(message: CommandNewTxns) -> Rows:
    count = len(message.request_ids)
    names = list(map(participant_in, message.participants))
    participants = divided(named(names, message.participant_indexes), message.participant_counts[:])
    # Few have them.
    follows: Sequence[TxnID | None] = ()
    if message.follows_most_bits or message.follows_least_bits:
        follows = txn_ids_of(message.follows_most_bits, message.follows_least_bits, count)
    return made(
        NewTxn,
        message.request_ids,
        message.traceparents,
        (
            filled(message.txn_timeouts_ms, 0, count),
            filled(participants, (), count),
            filled(numbered(message.identities, message.identity_numbers), None, count),
            filled(numbered(message.named_sequences, message.named_sequence_numbers), None, count),
            filled(message.call_tokens, 0, count),
            filled(message.answers_before_durable, False, count),
            filled(message.seen_stamps, 0, count),
            filled(message.follows_given, False, count),
            filled(follows, None, count),
            filled(divided(message.ledger_ids[:], message.ledger_id_counts[:]), (), count),
        ),
    )


def _pack_opened(answers: Answers) -> CommandNewTxnsResponse:
    txn_ids, timeouts_ms, proofs = zip(*answers.rows, strict=True) if answers.rows else ((),) * 3
    most_bits, least_bits = halves_of(txn_ids)
    return CommandNewTxnsResponse(
        first_request_id=answers.first_request_id,
        count=answers.asked_count,
        left_out=answers.left_out,
        txn_most_bits=most_bits,
        txn_least_bits=least_bits,
        txn_timeouts_ms=timeouts_ms,
        txn_proofs=unless_all(b"", proofs),
    )


def _unpack_opened(message: CommandNewTxnsResponse) -> Answers:
    count = len(message.txn_timeouts_ms)
    return answers_made(
        Opened,
        message,
        (
            map(_TXN_ID, pairs_of(message.txn_most_bits, message.txn_least_bits)),
            message.txn_timeouts_ms,
            filled(message.txn_proofs, b"", count),
        ),
    )


OPENED = AnswerColumns(
    "new_txn_response",
    "new_txns_response",
    Opened,
    CommandNewTxnResponse,
    CommandNewTxnsResponse,
    _pack_opened,
    _unpack_opened,
)
NEW_TXNS = Columns(
    "new_txn",
    "new_txns",
    NewTxn,
    CommandNewTxn,
    CommandNewTxns,
    _pack_new,
    _unpack_new,
    rows_min=_ROWS_MIN,
    answers=OPENED,
)
