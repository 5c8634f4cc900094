"""Closings of a coordinator's past that wait: for cuts, until their commits have ended everywhere.

Source: docs/design/0015-cuts.md, Waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar_core.errors import QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession

# Each looks at every end, and is over in a minute.
WAITING_MAX = 100
# Of a conversation; all unary calls count as one.
WAITING_OF_CLIENT_MAX = 20


class CutClosing:
    """Closing that waits.

    Args:
        unfinished: the commits that it waits for, in the order in which they are told.
        answer: called once, with those that it still waits for.
        session: the conversation that asked; None: a unary call.
    Attributes:
        stop_timer: called when it waits no longer.
    """

    __slots__ = ("_answer", "_unfinished", "session", "stop_timer")

    def __init__(
        self,
        unfinished: Iterable[TxnID],
        answer: Callable[[list[TxnID]], None],
        session: CommandSession | None,
    ) -> None:
        self._unfinished = dict.fromkeys(unfinished)
        self._answer = answer
        self.session = session
        self.stop_timer: Callable[[], object] = _nothing

    @property
    def is_wanted(self) -> bool:
        """Whether the client still waits for the answer."""
        return self.session is None or not self.session.closed

    def finished(self, txn_id: TxnID) -> bool:
        """Note that a transaction has ended everywhere; return whether nothing is left."""
        self._unfinished.pop(txn_id, None)
        return not self._unfinished

    def answer(self) -> None:
        """Say what it waits for."""
        self._answer(list(self._unfinished))


class CutClosings:
    """All closings of a coordinator that wait."""

    def __init__(self) -> None:
        self._waiting: dict[CutClosing, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, closing: CutClosing) -> None:
        """Wait until the commits of a closing have ended everywhere.

        Raises:
            QuotaExceeded: too many wait, or too many of this client. No effect.
        """
        for other in [one for one in self._waiting if not one.is_wanted]:
            self._remove(other)
        of_client = sum(one.session is closing.session for one in self._waiting)
        if len(self._waiting) >= WAITING_MAX or of_client >= WAITING_OF_CLIENT_MAX:
            raise QuotaExceeded(f"{len(self._waiting)} cuts wait at this coordinator: ask again")
        self._waiting[closing] = None

    def finished(self, txn_id: TxnID) -> None:
        """Note that every participant of a transaction has ended it."""
        if not self._waiting:
            return
        for closing in [one for one in self._waiting if one.finished(txn_id)]:
            self._remove(closing)
            closing.answer()

    def drop(self) -> None:
        """Stop answering: the coordinator ends."""
        for closing in list(self._waiting):
            self._remove(closing)

    def time_is_up(self, closing: CutClosing) -> None:
        """Answer a closing that has waited for long enough, if it still waits."""
        if closing in self._waiting:
            self._remove(closing)
            closing.answer()

    def _remove(self, closing: CutClosing) -> None:
        del self._waiting[closing]
        closing.stop_timer()


def _nothing() -> None:
    return
