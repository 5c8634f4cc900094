"""What is decided about a transaction: the decision, its refusals, and answers to repeats. Pure.

Source: PIP-31, Transaction Coordinator, TC Request Processing; rule e.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar_coordinator.records import Record
from magnetar_coordinator.transaction import (
    ACTION_OF,
    Counts,
    TxnAction,
    TxnStatus,
    selection_digest,
)
from magnetar_core.errors import InvalidTxnState, TxnForgotten
from magnetar_core.ids import TxnID


class OutcomeMissing(Exception):
    """The transaction has ended, and its outcome is no longer in memory.

    Not an error of the client's: the service looks the outcome up and gives the command again.
    Nothing may have changed when it is raised.
    """

    def __init__(self, txn_id: TxnID) -> None:
        super().__init__(txn_id)
        self.txn_id = txn_id


class Decision(NamedTuple):
    """What to append and apply; the transaction's status afterwards, for the answer.

    Attributes:
        fixed: this decision fixed the outcome. Participants hear of it once it is durable.
    """

    records: tuple[Record, ...]
    txn_id: TxnID
    status: TxnStatus
    fixed: bool = False


class EndTxnRequest(NamedTuple):
    """What CommandEndTxn says.

    Attributes:
        counts: None: omitted, not to be checked.
        selection: None: omitted; everybody counts in a first end, nothing is compared in a repeat.
        fingerprint: of a named sequence's content; empty: none. Not compared in a repeat.
        identity_shown: whether it may be a transactional producer's transaction: whoever asks has
            shown its identity, or this coordinator itself ends it.
    """

    txn_id: TxnID
    action: TxnAction
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    fingerprint: str = ""
    identity_shown: bool = True


def not_open(txn_id: TxnID, status: TxnStatus) -> InvalidTxnState:
    """The refusal of what only an OPEN transaction allows."""
    return InvalidTxnState(
        f"transaction {txn_id} is {status.name}, not OPEN", txn_id=txn_id, status=status.name
    )


def forgotten(txn_id: TxnID) -> TxnForgotten:
    """The refusal of anything about a transaction whose outcome is no longer kept."""
    return TxnForgotten(f"transaction {txn_id} ended, and its outcome is forgotten", txn_id=txn_id)


def repeat_end(end: EndTxnRequest, status: TxnStatus, digest: bytes) -> Decision:
    """Answer an end of what is being ended, or has ended.

    Counts, and a selection that is omitted, are not compared: what was fixed stays as it is.

    Args:
        digest: of the selection that was fixed.
    Raises:
        InvalidTxnState: the opposite outcome, or another selection, is fixed. No effect.
    Source: PIP-31, CommandEndTxn, step 2; rule e.
    """
    if ACTION_OF[status] is not end.action:
        raise InvalidTxnState(
            f"transaction {end.txn_id} is {status.name}: {end.action.name} comes too late",
            txn_id=end.txn_id,
            status=status.name,
        )
    if (
        end.action is TxnAction.COMMIT
        and end.selection is not None
        and selection_digest(end.selection) != digest
    ):
        raise InvalidTxnState(
            f"transaction {end.txn_id} is {status.name} with another selection",
            txn_id=end.txn_id,
            status=status.name,
        )
    return Decision((), end.txn_id, status)


def repeat_accept_loss(txn_id: TxnID, status: TxnStatus) -> Decision:
    """Answer an acceptance of loss of what is not COMMITTING.

    Raises:
        InvalidTxnState: it was not committed. No effect.
    """
    if status is not TxnStatus.COMMITTED:
        raise InvalidTxnState(
            f"transaction {txn_id} is {status.name}: there is no commit that could lack something",
            txn_id=txn_id,
            status=status.name,
        )
    return Decision((), txn_id, status)
