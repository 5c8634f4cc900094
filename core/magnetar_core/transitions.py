"""A state machine whose transitions stand in a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from magnetar_core.errors import InvalidTxnState

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class Machine(Generic[State, Event]):
    """The only reader of a table of transitions.

    Args:
        transitions: the table.
        subject: what is in these states, in words for people: "a member".
    """

    def __init__(self, transitions: Mapping[tuple[State, Event], State], subject: str) -> None:
        self._transitions = transitions
        self._subject = subject

    def next(self, state: State, event: Event, named: object = None) -> State:
        """Return the state to which an event leads.

        Args:
            state: the present state.
            event: the event.
            named: what an error calls it; None: the subject. Only an error asks for its text.
        Raises:
            InvalidTxnState: the event is not possible in this state. No effect.
        """
        target = self._transitions.get((state, event))
        if target is None:
            subject = self._subject if named is None else named
            raise InvalidTxnState(f"{subject} is {state.name}: {event.name} is not possible")
        return target

    def can(self, state: State, event: Event) -> bool:
        """Return whether an event is possible in a state."""
        return (state, event) in self._transitions
