"""Step of a state machine whose transitions stand in a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from magnetar_core.errors import InvalidTxnState

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def step(
    transitions: Mapping[tuple[State, Event], State],
    state: State,
    event: Event,
    name: object,
    **details: object,
) -> State:
    """Return the state to which an event leads.

    Args:
        transitions: the table.
        state: the present state.
        event: the event.
        name: what is in this state, in words for people: "a transaction". Only an error asks for
            its text.
        details: facts for programs, which the error carries.
    Raises:
        InvalidTxnState: the event is not possible in this state. No effect.
    """
    target = transitions.get((state, event))
    if target is None:
        raise InvalidTxnState(f"{name} is {state.name}: {event.name} is not possible", **details)
    return target
