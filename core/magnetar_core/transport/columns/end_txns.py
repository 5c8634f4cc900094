"""Ends of transactions at their coordinator, and the answers. Pure.

Source: PIP-31, CommandEndTxn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from magnetar_core.ids import TxnID
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
    txn_ids_of,
    unless_all,
    zipped,
)
from magnetar_core.transport.columns.participants import (
    Counted,
    counted_in,
    counts_in,
)
from magnetar_core.transport.spliced import Spliced
from magnetar_core.transport.spliced import joined as in_a_row
from magnetar_core.wire.common_pb2 import (
    ABORTED,
    ABORTING,
    COMMIT,
    COMMITTING,
    ProducerIdentity,
    TxnAction,
    TxnStatus,
)
from magnetar_core.wire.transaction_pb2 import (
    CommandEndTxn,
    CommandEndTxnResponse,
    CommandEndTxns,
    CommandEndTxnsResponse,
)

# What an end has beside its counts, a selection and an identity, and the id of a writer at most.
_END_BYTES: Final = 384
_WRITER_ID_BYTES: Final = 10
# See Columns.rows_min.
_ROWS_MIN: Final = 4
# What an answer has beside a proof or an identity.
_ANSWER_BYTES: Final = 64


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
        """Convert from the message of a single command."""
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
        """Convert to the message of a single command."""
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
        """Convert from the message of a single command."""
        return cls(
            TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None,
            wire.status,
            wire.stamp,
            wire.identity if wire.HasField("identity") else None,
        )

    def to_wire(self) -> CommandEndTxnResponse:
        """Convert to the message of a single command."""
        answer = CommandEndTxnResponse(status=self.status, stamp=self.stamp, identity=self.identity)
        if self.txn_id is not None:
            # In place: a message that is given to the constructor is serialized and parsed.
            txn_id = answer.txn_id
            txn_id.most_bits, txn_id.least_bits = self.txn_id
        return answer


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
        identity_numbers=numbers_of(identities),
        fingerprints=unless_all("", fingerprints),
        seen_stamps=unless_all(0, stamps),
        by_hand=unless_all(False, by_hand),
        keep_epoch=unless_all(False, keep_epoch),
    )


def _unpack_end(message: CommandEndTxns) -> Rows:
    count = len(message.request_ids)
    every = named(list(map(counted_in, message.counts[:])), message.participant_indexes)
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
            filled(numbered(message.identities, message.identity_numbers), None, count),
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
        identity_numbers=numbers_of(identities),
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
            filled(numbered(message.identities, message.identity_numbers), None, count),
        ),
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
