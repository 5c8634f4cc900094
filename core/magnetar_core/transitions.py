"""The step of a state machine whose transitions stand in a table. Pure."""

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
    name: str,
    **details: object,
) -> State:
    """Where an event leads.

    Args:
        name: of what is in this state, for people: "an end".
        details: facts for programs, which the error has as well.
    Raises:
        InvalidTxnState: nowhere from this state. No effect.
    """
    target = transitions.get((state, event))
    if target is None:
        raise InvalidTxnState(f"{name} is {state.name}: {event.name} is not possible", **details)
    return target
