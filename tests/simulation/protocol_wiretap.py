"""Follows what the servers themselves note of the protocol, in all of their lives.

The follower knows the rules, and no message. Where servers and clients agree on something wrong,
the other checkers see nothing, and it does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from tests.simulation.history import Violation

from magnetar_cli.histories.follower import Follower, HistoryRefused
from magnetar_core.history.events import Event, Life, Server
from magnetar_core.history.history import History


class ProtocolWiretap:
    """
    Args:
        violation: ends the run; invariant or rule, and text.
        fail: ends the run with an error of the follower itself.
    Attributes:
        follows: off where a planted bug is to be seen by the other checkers alone.
    """

    follows = True

    def __init__(
        self,
        violation: Callable[[str, str], NoReturn],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._violation = violation
        self._fail = fail
        self.follower = Follower()

    def history_of(self, kind: str, number: int, life: int) -> History | None:
        """The history of a server's new life."""
        return History(Life(Server(kind, number), life), self._take) if self.follows else None

    def finish(self) -> None:
        """The history ends."""
        try:
            self.follower.finish()
        except HistoryRefused as refused:
            self._refused(refused)

    def _take(self, life: Life, event: Event) -> None:
        try:
            self.follower.take(life, event)
        except HistoryRefused as refused:
            self._refused(refused)
        except Exception as error:
            self._fail(error)

    def _refused(self, refused: HistoryRefused) -> None:
        # Servers note, and are not told what comes of it.
        with suppress(Violation):
            self._violation("of the history", str(refused))
