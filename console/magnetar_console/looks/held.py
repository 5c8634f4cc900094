"""Open transactions of transactional ids: what two-phase commit may hold for ever comes first."""

from __future__ import annotations

from typing import Final

from magnetar import (
    Client,
    MagnetarError,
    TransactionChanges,
    TransactionDescription,
    TransactionStatus,
    TxnID,
)
from magnetar_console.looks.transactions import Beginnings, transaction_row
from magnetar_console.pauses import CHANGES_PAUSE
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock

# How many transactions are shown.
HELD_MAX: Final = 500


class HeldLook:
    """The open transactions that have a transactional id.

    A program with the same id takes such a transaction over. If none comes, one in two-phase commit
    stays open until its database is asked.
    """

    def __init__(self, clock: Clock) -> None:
        self.period_s = 2.0
        self.pause_factor = CHANGES_PAUSE
        self._beginnings = Beginnings(clock)
        self._changes: TransactionChanges | None = None
        self._live: dict[TxnID, TransactionDescription] = {}
        self._since_ms: dict[TxnID, int] = {}

    async def look(self, client: Client) -> Seen:
        """Ask all coordinators what has changed."""
        unanswered: dict[int, MagnetarError] = {}
        self._changes = await client.admin.transactions.changes(
            self._changes, on_unanswered=unanswered.__setitem__
        )
        self._changes.apply_to(self._live)
        for one in self._changes.transactions:
            # Its age is that of this answer.
            self._since_ms[one.txn_id] = self._beginnings.began_ms(one.txn_id, one.age_ms)
        self._beginnings.keep(self._live)
        held = [one for one in self._live.values() if _is_held(one)]
        held.sort(key=lambda one: (not one.two_phase_commit, one.txn_id))
        shown = held[:HELD_MAX]
        rows = {str(one.txn_id): self._row(one) for one in shown}
        self._since_ms = {txn_id: self._since_ms[txn_id] for txn_id in self._live}
        problems = [
            f"Coordinator {tcid} does not answer: its transactions may have changed: {error}"
            for tcid, error in sorted(unanswered.items())
        ]
        if len(shown) < len(held):
            problems.append(f"The first {len(shown):,} of {len(held):,} transactions are shown.")
        return Seen({"held": rows}, tuple(problems))

    async def close(self) -> None:
        """Forget everything."""
        self._changes = None
        self._live.clear()
        self._since_ms.clear()
        self._beginnings.keep(())

    def _row(self, one: TransactionDescription) -> Row:
        return {
            **transaction_row(one, self._since_ms[one.txn_id]),
            "prepared_state": str(one.prepared_state),
        }


def _is_held(one: TransactionDescription) -> bool:
    """Whether a transaction is open, and belongs to a transactional id."""
    return one.status is TransactionStatus.OPEN and one.identity is not None
