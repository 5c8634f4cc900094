"""Records what the servers themselves note of the protocol, in all of their lives."""

from __future__ import annotations

from magnetar_core.history.events import Event, Life, Server
from magnetar_core.history.history import History


class ProtocolWiretap:
    """
    Attributes:
        events: all of them, in their order.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Life, Event]] = []

    def history_of(self, kind: str, number: int, life: int) -> History:
        """The history of a server's new life."""
        return History(Life(Server(kind, number), life), self._take)

    def _take(self, life: Life, event: Event) -> None:
        self.events.append((life, event))
