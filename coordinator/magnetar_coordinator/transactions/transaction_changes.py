"""Changes among transactions, in the order in which they happened, for programs that show them.

Nothing is noted while no client follows. Nothing survives a restart, and no decision uses it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_core.ids import TxnID

# So long after the last question changes are noted.
FOLLOWED_MS: Final = 60_000


class Change(NamedTuple):
    """The latest change of a transaction.

    Attributes:
        outcome: of a transaction that has ended everywhere; None: it is live.
    """

    txn_id: TxnID
    version: int
    outcome: TxnEnded | None


class TransactionChanges:
    """The latest change of each transaction that has changed lately.

    Args:
        changes_max: how many are noted; those before them are forgotten.
    Attributes:
        is_followed: whether changes are noted.
        version: number of changes, those that were not noted left out.
    """

    def __init__(self, changes_max: int) -> None:
        self._changes_max = changes_max
        self._changes: dict[TxnID, Change] = {}
        # Changes up to this one are forgotten.
        self._forgotten = 0
        self._asked_ms = 0.0
        self.is_followed = False
        self.version = 0

    def note(self, txn_id: TxnID, outcome: TxnEnded | None = None) -> None:
        """Note that a transaction has changed."""
        self.version += 1
        changes = self._changes
        changes.pop(txn_id, None)
        changes[txn_id] = Change(txn_id, self.version, outcome)
        if len(changes) > self._changes_max:
            self._forgotten = changes.pop(next(iter(changes))).version

    def progressed(self, txn_id: TxnID) -> None:
        """Note, if a client follows, a change of a live transaction that no record tells."""
        if self.is_followed:
            self.note(txn_id)

    def asked(self, now_ms: float) -> None:
        """Note changes from now on: a client follows."""
        self._asked_ms = now_ms
        if not self.is_followed:
            self.is_followed = True
            # Changes that were not noted count as one that is forgotten.
            self.version += 1
            self._forgotten = self.version

    def stop_if_idle(self, now_ms: float) -> None:
        """Note nothing more if no client has asked for long."""
        if self.is_followed and now_ms - self._asked_ms > FOLLOWED_MS:
            self.is_followed = False
            self._changes.clear()

    def knows_since(self, version: int) -> bool:
        """Return whether all changes after this one are known here."""
        return self._forgotten <= version <= self.version

    def since(self, version: int) -> Iterator[Change]:
        """Yield changes after this one, the earliest first."""
        newest_first = takewhile(
            lambda change: change.version > version, reversed(self._changes.values())
        )
        yield from reversed(list(newest_first))
