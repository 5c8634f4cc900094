"""Beginnings and ends of transactions at their coordinator, and the answers. Pure.

Source: PIP-31, CommandNewTxn and CommandEndTxn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_core.ids import Participant, PartitionName, SubscriptionName, TxnID
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
    pairs_of,
    txn_ids_of,
    unless_all,
    zipped,
)
from magnetar_core.transport.spliced import Spliced, field_start
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.common_pb2 import (
    ABORTED,
    ABORTING,
    COMMIT,
    COMMITTING,
    Partition,
    ProducerIdentity,
    Subscription,
    TxnAction,
    TxnStatus,
)
from magnetar_core.wire.packed_pb2 import PackedCounts, PackedEndTxn, PackedNewTxn
from magnetar_core.wire.transaction_pb2 import (
    CommandEndTxn,
    CommandEndTxnResponse,
    CommandEndTxns,
    CommandEndTxnsResponse,
    CommandNewTxn,
    CommandNewTxnResponse,
    CommandNewTxns,
    CommandNewTxnsResponse,
    NamedSequence,
)

# What a beginning has beside its participants and an identity or a named sequence, what an end has
# beside its counts, a selection and an identity, and each of the parts at most.
_NEW_BYTES: Final = 128
_END_BYTES: Final = 384
_PARTICIPANT_BYTES: Final = 64
_WRITER_ID_BYTES: Final = 10
_LEDGER_ID_BYTES: Final = 10
# See Columns.rows_min.
_ROWS_MIN: Final = 4
# What an answer has beside a proof or an identity.
_ANSWER_BYTES: Final = 64
# Names, and participants with counts, whose bytes are kept: the same ones come again and again.
_KEPT_MAX: Final = 1_024
# Longer ones are not kept.
_KEPT_BYTES_MAX: Final = 2_048

# Without the constructor of a NamedTuple, which is a Python function.
_TXN_ID: Final = partial(tuple.__new__, TxnID)

# A participant, and its confirmed writes as a field of CommandEndTxn.
Counted: TypeAlias = tuple[Participant, bytes]

MessageT = TypeVar("MessageT", bound=Message)


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
        """Convert from the message of one alone."""
        # As bytes, whose names are known: protobuf's objects would cost several times as much.
        view = PackedNewTxn.FromString(wire.SerializeToString())
        return cls(
            wire.txn_timeout_ms,
            # A slice is a list, and costs a third of an iterator of protobuf's.
            (*map(_partition, view.partitions[:]), *map(_subscription, view.subscriptions[:])),
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
        """Convert to the message of one alone."""
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
        names = map(_participant_field, self.participants)
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
        """Convert from the message of one alone."""
        return cls(TxnID.from_wire(wire.txn_id), wire.txn_timeout_ms, wire.txn_proof)

    def to_wire(self) -> CommandNewTxnResponse:
        """Convert to the message of one alone."""
        return CommandNewTxnResponse(
            txn_id=self.txn_id.to_wire(),
            txn_timeout_ms=self.txn_timeout_ms,
            txn_proof=self.txn_proof,
        )


class EndTxn(NamedTuple):
    """A CommandEndTxn.

    Attributes:
        txn_id: None: that of the identity.
        counts: confirmed writes, of each participant with the field of the message that has them,
            serialized; None: they are not given.
        selection: the writers that count; None: all.
        identity: of a transactional producer; None: there is none.
        fingerprint: of a named sequence; empty: there is none.
        seen_stamp: 0: there is none.
        keep_epoch: whether the pair of the identity stays as it is.
    """

    txn_id: TxnID | None
    txn_action: TxnAction = COMMIT
    counts: Sequence[Counted] | None = None
    selection: Sequence[int] | None = None
    wait_finished: bool = False
    identity: ProducerIdentity | None = None
    fingerprint: str = ""
    seen_stamp: int = 0
    by_hand: bool = False
    keep_epoch: bool = False

    @property
    def byte_count(self) -> int:
        """About the most bytes that it takes in columns."""
        size = sum([len(one) for _, one in self.counts or ()]) + _END_BYTES
        size += len(self.selection or ()) * _WRITER_ID_BYTES + len(self.fingerprint) * 4
        return size if self.identity is None else size + self.identity.ByteSize()

    @classmethod
    def from_wire(cls, wire: CommandEndTxn) -> Self:
        """Convert from the message of one alone."""
        return cls(
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            wire.txn_action,
            counts_in(wire.SerializeToString()) if wire.counts_given else None,
            wire.selected_writer_ids[:] if wire.selection_given else None,
            wire.wait_finished,
            wire.identity if wire.HasField("identity") else None,
            wire.fingerprint,
            wire.seen_stamp,
            wire.by_hand,
            wire.keep_epoch,
        )

    def to_wire(self) -> Spliced[CommandEndTxn]:
        """Convert to the message of one alone."""
        rest = CommandEndTxn(
            txn_id=None if self.txn_id is None else self.txn_id.to_wire(),
            txn_action=self.txn_action,
            counts_given=self.counts is not None,
            selection_given=self.selection is not None,
            selected_writer_ids=self.selection or (),
            wait_finished=self.wait_finished,
            identity=self.identity,
            fingerprint=self.fingerprint,
            seen_stamp=self.seen_stamp,
            by_hand=self.by_hand,
            keep_epoch=self.keep_epoch,
        )
        return in_a_row(
            CommandEndTxn, rest.SerializeToString(), *[one for _, one in self.counts or ()]
        )


class Ended(NamedTuple):
    """A CommandEndTxnResponse.

    Attributes:
        txn_id: None: there was no transaction.
        stamp: of the commit, or a later one of its coordinator; 0: it did not commit.
        identity: the pair for the next transaction of a transactional producer; None: there is
            none.
    """

    txn_id: TxnID | None
    status: TxnStatus
    stamp: int = 0
    identity: ProducerIdentity | None = None

    @property
    def byte_count(self) -> int:
        """The most bytes that it takes in columns."""
        return _ANSWER_BYTES + (0 if self.identity is None else self.identity.ByteSize())

    @classmethod
    def from_wire(cls, wire: CommandEndTxnResponse) -> Self:
        """Convert from the message of one alone."""
        return cls(
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            wire.status,
            wire.stamp,
            wire.identity if wire.HasField("identity") else None,
        )

    def to_wire(self) -> CommandEndTxnResponse:
        """Convert to the message of one alone."""
        return CommandEndTxnResponse(
            txn_id=None if self.txn_id is None else self.txn_id.to_wire(),
            status=self.status,
            stamp=self.stamp,
            identity=self.identity,
        )


# Participants as fields of commands. CommandEndTxn has counts in the same fields as
# CommandEndTxnOnParticipants, so that a coordinator passes them on as they are.


def counts_in(fields: bytes) -> list[Counted]:
    """Return the participants that a command or a row counts writes of, each with its field.

    Partitions come first.

    Args:
        fields: CommandEndTxn, serialized, or fields of it.
    Raises:
        DecodeError: it is damaged.
    """
    view = PackedEndTxn.FromString(fields)
    every = [
        *[
            field_start(CommandEndTxn, "partition_counts", len(one)) + one
            for one in view.partition_counts[:]
        ],
        *[
            field_start(CommandEndTxn, "subscription_counts", len(one)) + one
            for one in view.subscription_counts[:]
        ],
    ]
    return list(map(_counted_in, every))


def _counted_in(field: bytes) -> Counted:
    """Return a participant and the field of CommandEndTxn with its counts.

    Raises:
        DecodeError: it is damaged, or not one field.
    """
    return _counted(field) if len(field) <= _KEPT_BYTES_MAX else _counted.__wrapped__(field)


@lru_cache(maxsize=_KEPT_MAX)
def _counted(field: bytes) -> Counted:
    view = PackedEndTxn.FromString(field)
    if len(view.partition_counts) + len(view.subscription_counts) != 1:
        raise DecodeError("not one participant")
    for packed in view.partition_counts:
        return _partition(PackedCounts.FromString(packed).participant), field
    packed = view.subscription_counts[0]
    return _subscription(PackedCounts.FromString(packed).participant), field


@lru_cache(maxsize=_KEPT_MAX)
def _participant_field(name: Participant) -> bytes:
    if isinstance(name, SubscriptionName):
        return CommandNewTxn(subscriptions=[name.to_wire()]).SerializeToString()
    return CommandNewTxn(partitions=[name.to_wire()]).SerializeToString()


@lru_cache(maxsize=_KEPT_MAX)
def _participant(field: bytes) -> Participant:
    """Return the participant that a field of CommandNewTxn names.

    Raises:
        DecodeError: it is damaged, or not one field.
    """
    view = PackedNewTxn.FromString(field)
    if len(view.partitions) + len(view.subscriptions) != 1:
        raise DecodeError("not one participant")
    for packed in view.partitions:
        return _partition(packed)
    return _subscription(view.subscriptions[0])


@lru_cache(maxsize=_KEPT_MAX)
def _partition(packed: bytes) -> PartitionName:
    return PartitionName.from_wire(Partition.FromString(packed))


@lru_cache(maxsize=_KEPT_MAX)
def _subscription(packed: bytes) -> SubscriptionName:
    return SubscriptionName.from_wire(Subscription.FromString(packed))


# What few rows have: a table, and the number of each row's value in it.


def _numbers(values: Sequence[Message | None]) -> Sequence[int]:
    """Return the column of numbers; empty: no row has a value."""
    count = 0
    numbers: list[int] = []
    for one in values:
        count += one is not None
        numbers.append(0 if one is None else count)
    return numbers if count else ()


def _numbered(table: Sequence[MessageT], numbers: Sequence[int]) -> Sequence[MessageT | None]:
    return named([None, *table], numbers)


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
        participants=map(_participant_field, indexes),
        participant_counts=unless_all(0, list(map(len, participants))),
        participant_indexes=[indexes[name] for name in every],
        identities=[one for one in identities if one is not None],
        identity_numbers=_numbers(identities),
        named_sequences=[one for one in sequences if one is not None],
        named_sequence_numbers=_numbers(sequences),
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
    names = [
        _participant(one) if len(one) <= _KEPT_BYTES_MAX else _participant.__wrapped__(one)
        for one in message.participants
    ]
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
            filled(_numbered(message.identities, message.identity_numbers), None, count),
            filled(_numbered(message.named_sequences, message.named_sequence_numbers), None, count),
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


def _pack_end(rows: Rows) -> CommandEndTxns:
    columns = zip(*rows.rows, strict=True)
    txn_ids, actions, counts, selections, waits, identities, *rest = columns
    fingerprints, stamps, by_hand, keep_epoch = rest
    most_bits, least_bits = halves_of([one or NO_TXN for one in txn_ids])
    every = [field for one in counts for _, field in one or ()]
    indexes = {one: index for index, one in enumerate(dict.fromkeys(every))}
    return CommandEndTxns(
        request_ids=rows.request_ids,
        traceparents=unless_all(b"", rows.traceparents),
        txn_most_bits=most_bits,
        txn_least_bits=least_bits,
        txn_actions=unless_all(COMMIT, actions),
        counts_given=unless_all(True, [one is not None for one in counts]),
        counts=indexes,
        participant_counts=unless_all(0, [len(one or ()) for one in counts]),
        participant_indexes=[indexes[one] for one in every],
        selections_given=unless_all(False, [one is not None for one in selections]),
        selection_counts=unless_all(0, [len(one or ()) for one in selections]),
        selected_writer_ids=joined(one or () for one in selections),
        wait_finished=unless_all(False, waits),
        identities=[one for one in identities if one is not None],
        identity_numbers=_numbers(identities),
        fingerprints=unless_all("", fingerprints),
        seen_stamps=unless_all(0, stamps),
        by_hand=unless_all(False, by_hand),
        keep_epoch=unless_all(False, keep_epoch),
    )


def _unpack_end(message: CommandEndTxns) -> Rows:
    count = len(message.request_ids)
    every = named(list(map(_counted_in, message.counts[:])), message.participant_indexes)
    return made(
        EndTxn,
        message.request_ids,
        message.traceparents,
        (
            txn_ids_of(message.txn_most_bits, message.txn_least_bits, count),
            filled(message.txn_actions, COMMIT, count),
            _given(every, message.participant_counts[:], message.counts_given, True, count),
            _given(
                message.selected_writer_ids[:],
                message.selection_counts[:],
                message.selections_given,
                False,
                count,
            ),
            filled(message.wait_finished, False, count),
            filled(_numbered(message.identities, message.identity_numbers), None, count),
            filled(message.fingerprints, "", count),
            filled(message.seen_stamps, 0, count),
            filled(message.by_hand, False, count),
            filled(message.keep_epoch, False, count),
        ),
    )


def _given(
    every: Sequence[Any],
    counts: Sequence[int],
    given: Sequence[bool],
    absent: bool,
    count: int,
) -> Sequence[Sequence[Any] | None]:
    """Return a column of several values for each row, or None where they are not given.

    Raises:
        DecodeError: there are other numbers of them than the columns say.
    """
    several = filled(divided(every, counts), (), count)
    is_given = filled(given, absent, count)
    return [some if is_there else None for some, is_there in zipped(several, is_given)]


def _pack_ended(answers: Answers) -> CommandEndTxnsResponse:
    txn_ids, statuses, stamps, identities = (
        zip(*answers.rows, strict=True) if answers.rows else ((),) * 4
    )
    most_bits, least_bits = halves_of([one or NO_TXN for one in txn_ids])
    return CommandEndTxnsResponse(
        first_request_id=answers.first_request_id,
        count=answers.asked_count,
        left_out=answers.left_out,
        txn_most_bits=most_bits,
        txn_least_bits=least_bits,
        statuses=unless_all(COMMITTING, statuses),
        stamp=max(stamps, default=0),
        identities=[one for one in identities if one is not None],
        identity_numbers=_numbers(identities),
    )


def _unpack_ended(message: CommandEndTxnsResponse) -> Answers:
    count = len(message.txn_least_bits)
    statuses = message.statuses[:] or [COMMITTING] * count
    stamp = message.stamp
    return answers_made(
        Ended,
        message,
        (
            txn_ids_of(message.txn_most_bits, message.txn_least_bits, count),
            statuses,
            [0 if status in (ABORTING, ABORTED) else stamp for status in statuses],
            filled(_numbered(message.identities, message.identity_numbers), None, count),
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
TXNS_ENDED = AnswerColumns(
    "end_txn_response",
    "end_txns_response",
    Ended,
    CommandEndTxnResponse,
    CommandEndTxnsResponse,
    _pack_ended,
    _unpack_ended,
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
END_TXNS = Columns(
    "end_txn",
    "end_txns",
    EndTxn,
    CommandEndTxn,
    CommandEndTxns,
    _pack_end,
    _unpack_end,
    rows_min=_ROWS_MIN,
    answers=TXNS_ENDED,
)
