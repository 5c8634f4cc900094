"""The phases of a group's member, and the one table that moves them. Pure.

Only `next_phase` reads the table, and only `MemberState._move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0003-groups.md, Members.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar_core.transitions import step


@unique
class Phase(Enum):
    """Phase of a member, with its meaning."""

    JOINING = "it asks the group to take it in"
    MEMBER = "it sends heartbeats, and has what it is assigned"
    LEAVING = "the application did not receive for too long: the group is told that it leaves"
    AWAY = "it has left, and joins again with the application's next receive"
    ENDED = "a newer member has its instance id, or a broker refuses it for good"


@unique
class PhaseEvent(Enum):
    """Event that changes the phase of a member."""

    JOINED = "the group has taken it in"
    UNKNOWN = "the group does not know it"
    OVERDUE = "the application did not receive for too long"
    LEFT = "the group has heard that it leaves"
    CAME_BACK = "the application is there again"
    ENDED = "a newer member has its instance id, or a broker refuses it for good"


TRANSITIONS: Final[Mapping[tuple[Phase, PhaseEvent], Phase]] = {
    (Phase.JOINING, PhaseEvent.JOINED): Phase.MEMBER,
    (Phase.MEMBER, PhaseEvent.UNKNOWN): Phase.JOINING,
    (Phase.MEMBER, PhaseEvent.OVERDUE): Phase.LEAVING,
    (Phase.LEAVING, PhaseEvent.LEFT): Phase.AWAY,
    (Phase.LEAVING, PhaseEvent.UNKNOWN): Phase.AWAY,
    (Phase.LEAVING, PhaseEvent.CAME_BACK): Phase.JOINING,
    (Phase.AWAY, PhaseEvent.CAME_BACK): Phase.JOINING,
    (Phase.JOINING, PhaseEvent.ENDED): Phase.ENDED,
    (Phase.MEMBER, PhaseEvent.ENDED): Phase.ENDED,
    (Phase.LEAVING, PhaseEvent.ENDED): Phase.ENDED,
    (Phase.AWAY, PhaseEvent.ENDED): Phase.ENDED,
    (Phase.ENDED, PhaseEvent.ENDED): Phase.ENDED,
    # The application came back before the group had heard that the member leaves.
    (Phase.JOINING, PhaseEvent.LEFT): Phase.JOINING,
    # The group does not know a member that it refuses.
    (Phase.JOINING, PhaseEvent.UNKNOWN): Phase.JOINING,
}


def next_phase(phase: Phase, event: PhaseEvent) -> Phase:
    """Return the phase after an event.

    Raises:
        InvalidTxnState: the event cannot happen in this phase. No effect.
    """
    return step(TRANSITIONS, phase, event, "a member")
