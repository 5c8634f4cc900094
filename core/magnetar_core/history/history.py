"""History of a server's life: where its code notes the events of the protocol. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from magnetar_core.history.events import Event, Life

# Takes an event and the life to which it belongs. It must not raise.
Sink: TypeAlias = Callable[[Life, Event], None]


class History:
    """History of a life. Servers without one, which is usual, note nothing.

    Code that changes state asks whether there is one before it makes an event.

    Args:
        sink: takes the events in the order in which they happen.
    """

    __slots__ = ("_sink", "life")

    def __init__(self, life: Life, sink: Sink) -> None:
        self.life = life
        self._sink = sink

    def note(self, event: Event) -> None:
        """Note an event."""
        self._sink(self.life, event)
