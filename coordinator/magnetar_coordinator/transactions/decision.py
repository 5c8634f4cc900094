"""Decisions about transactions, refusals, and answers to repeated commands. Pure.

Source: PIP-31, Transaction Coordinator, TC Request Processing; rule e.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar_coordinator.metadata.records import Record
from magnetar_coordinator.metadata.transaction import (
    ACTION_OF,
    Counts,
    TxnAction,
    TxnStatus,
)
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import InvalidTxnState, TxnForgotten
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection


class OutcomeMissing(Exception):
    """The transaction has ended, and its outcome is no longer in memory.

    Not an error of the client's: the service looks the outcome up and gives the command again.
    Nothing may have changed when it is raised.
    """

    def __init__(self, txn_id: TxnID) -> None:
        super().__init__(txn_id)
        self.txn_id = txn_id


class Decision(NamedTuple):
    """A record to append and apply, and the transaction's status afterwards.

    Attributes:
        record: None: nothing changes. StatusChanged fixes the outcome: participants are told once
            it is durable.
        stamp: of a commit; 0: it did not commit.
    """

    record: Record | None
    status: TxnStatus
    stamp: int = NO_STAMP


class EndTxnRequest(NamedTuple):
    """The content of CommandEndTxn.

    Attributes:
        counts: None: omitted, not to be checked.
        selection: None: omitted; all writers count in a first request, nothing is compared in a
            repeat.
        fingerprint: fingerprint of a named sequence's content; empty: none. Not compared in a
            repeat.
        identity_shown: whether it may be a transactional producer's transaction: the client has
            shown its identity, or this coordinator itself ends it.
        seen_stamp: the highest stamp that the client has seen; 0: none.
        keep_epoch: its transactional producer goes on with the same pair.
    """

    txn_id: TxnID
    action: TxnAction
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    fingerprint: str = ""
    identity_shown: bool = True
    seen_stamp: int = NO_STAMP
    keep_epoch: bool = False


def not_open(txn_id: TxnID, status: TxnStatus) -> InvalidTxnState:
    """Return the error of a command that only an OPEN transaction allows."""
    return InvalidTxnState(
        f"transaction {txn_id} is {status.name}, not OPEN", txn_id=txn_id, status=status.name
    )


def may_be_prepared(txn_id: TxnID, transactional_id: str) -> InvalidTxnState:
    """Return the error of a command that would end an OPEN transaction of two-phase commit.

    Only the database knows whether such a transaction is prepared, and how it ends: prepare() asks
    no coordinator.
    """
    return InvalidTxnState(
        f"{txn_id} of {transactional_id!r} is in two-phase commit and may be prepared, so nothing"
        " was ended. If the database's table of states names it, `magnetar transactions complete`"
        " commits it; if not, `magnetar transactions force-terminate --abort-prepared` aborts it",
        txn_id=txn_id,
        transactional_id=transactional_id,
    )


def forgotten(txn_id: TxnID) -> TxnForgotten:
    """Return the error about a transaction whose outcome is no longer kept."""
    return TxnForgotten(f"transaction {txn_id} ended, and its outcome is forgotten", txn_id=txn_id)


def repeat_end(
    end: EndTxnRequest, status: TxnStatus, digest: bytes, stamp: int = NO_STAMP
) -> Decision:
    """Answer a request to end a transaction that is ending or has ended.

    Counts, and an omitted selection, are not compared: the outcome stays as it was fixed.

    Args:
        digest: digest of the fixed selection.
        stamp: of the commit.
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
        and digest != digest_of_selection(end.selection)
    ):
        raise InvalidTxnState(
            f"transaction {end.txn_id} is {status.name} with another selection",
            txn_id=end.txn_id,
            status=status.name,
        )
    return Decision(None, status, stamp)


def repeat_accept_loss(txn_id: TxnID, status: TxnStatus) -> Decision:
    """Answer an acceptance of loss for a transaction that is not COMMITTING.

    Raises:
        InvalidTxnState: it was not committed. No effect.
    """
    if status is not TxnStatus.COMMITTED:
        raise InvalidTxnState(
            f"transaction {txn_id} is {status.name}: only a commit that waits can accept a loss",
            txn_id=txn_id,
            status=status.name,
        )
    return Decision(None, status)
