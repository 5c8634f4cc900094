"""Lives of a server as a history tells them: what is in memory, and what of it is durable. Pure.

A server changes its memory, and a group commit makes that durable. When a life ends, a store keeps
all groups that were durable, and perhaps more, in their order. A life that has lost its store to
the next one may go on for a while: nothing that it does has an effect (docs/design/0009-owners.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from magnetar_core.history.events import (
    BrokerRecovered,
    CoordinatorRecovered,
    Durable,
    Event,
    Life,
    Sealed,
)


class State(Protocol):
    """State of a server."""

    def copy(self) -> Self:
        """Return a copy that does not change with this one."""
        ...

    def apply(self, event: Event) -> None:
        """Change as an event says."""
        ...


S = TypeVar("S", bound=State)
RECOVERIES = (BrokerRecovered, CoordinatorRecovered)


class Lives(Generic[S]):
    """Lives of a server.

    Attributes:
        life: the life that has the store; None: none has recovered.
        memory: the state in this life.
        rows: the part of it that is durable.
        written: the part of it that outlives the process.
        began_with_rows: the history begins with what the store had before.
        losses: how many losses of the store were accepted, or its incarnation.
    """

    def __init__(self, empty: S) -> None:
        self.life: Life | None = None
        self.memory = empty
        self.rows = empty.copy()
        self.began_with_rows = False
        self._written: S | None = None
        self._written_position = 0
        self.losses = 0
        # Events of lives that are reading their stores.
        self._starting: dict[Life, list[Event]] = {}
        self._open: list[Event] = []
        self._sealed: deque[tuple[int, list[Event]]] = deque()
        # Up to which group the store has what a life has written.
        self._ends: dict[Life, int] = {}
        self.durable_position = 0

    def is_past(self, life: Life) -> bool:
        """Return whether a life has lost its store to a later one."""
        return self.life is not None and life.number < self.life.number

    def is_reading(self, life: Life) -> bool:
        """Return whether a life is reading its store."""
        return self.life is None or life.number > self.life.number

    def reads(self, life: Life, event: Event) -> None:
        """Note an event of a life that is reading its store."""
        self._starting.setdefault(life, []).append(event)

    def found(self, life: Life) -> list[Event]:
        """Return the findings of a life in its store until now."""
        return self._starting.get(life, [])

    def end_of(self, life: Life) -> int | None:
        """Return up to which group the store has what a past life has written; None: unknown."""
        return self._ends.get(life)

    @property
    def written(self) -> S:
        """The part of the memory that outlives the process."""
        return self.rows if self._written is None else self._written

    @property
    def sealed_position(self) -> int:
        """The last group that is sealed."""
        return self._sealed[-1][0] if self._sealed else self.durable_position

    def unwritten(self) -> Iterator[Event]:
        """Yield the events of the present life that are not durable."""
        for _, group in self._sealed:
            yield from group
        yield from self._open

    def possible(self) -> list[tuple[int, S]]:
        """Return the states that the store may have if the life ends now, with their positions."""
        state = self.rows.copy()
        states = [(self.durable_position, state)]
        for position, group in self._sealed:
            state = state.copy()
            for event in group:
                state.apply(event)
            states.append((position, state))
        return states

    def matching(self, differs: Callable[[S], str | None]) -> tuple[int, S] | str:
        """Return the latest possible state that does not differ, or how the earliest one differs.

        Args:
            differs: says how a state differs from what was found.
        """
        states = self.possible()
        for position, state in reversed(states):
            if differs(state) is None:
                return position, state
        text = differs(states[0][1])
        return f"{text}; of {len(states)} groups that the store may have, none fits"

    def recovered(self, life: Life, state: S, *, kept_position: int) -> None:
        """Begin a life with what it has found.

        Args:
            kept_position: up to which group the store has what the life before has written.
        """
        if self.life is not None:
            self._ends[self.life] = kept_position
        self.life = life
        begun = self._starting.pop(life, [])
        self._starting = {one: found for one, found in self._starting.items() if one > life}
        self._open = []
        # Groups of the time in which it was reading have nothing that is noted.
        positions = [one.position for one in begun if isinstance(one, Sealed)]
        durable = [one.position for one in begun if isinstance(one, Durable)]
        self.durable_position = max(durable, default=0)
        self._sealed = deque((one, []) for one in positions if one > self.durable_position)
        self._written, self._written_position = None, self.durable_position
        self.memory, self.rows = state, state.copy()

    def take(self, event: Any) -> None:
        """Apply an event of the present life to its memory."""
        self.memory.apply(event)
        self._open.append(event)

    def seal(self, position: int) -> None:
        """Close the open group."""
        self._sealed.append((position, self._open))
        self._open = []

    def became_durable(self, position: int) -> None:
        """Apply groups to what is durable."""
        while self._sealed and self._sealed[0][0] <= position:
            _, group = self._sealed.popleft()
            for event in group:
                self.rows.apply(event)
        self.durable_position = position
        if position >= self._written_position:
            self._written, self._written_position = None, position

    def became_written(self, position: int) -> None:
        """Apply groups to what outlives the process."""
        if self._written is None:
            self._written = self.rows.copy()
        for sealed, group in self._sealed:
            if self._written_position < sealed <= position:
                for event in group:
                    self._written.apply(event)
        self._written_position = position
