"""The phases of a group's member, and the one table that moves them. Pure.

Only `MACHINE` reads the table, and only `MemberState._move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0003-groups.md, Members.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar_core.transitions import Machine


@unique
class MemberPhase(Enum):
    """Phase of a member, with its meaning."""

    JOINING = "it asks the group to take it in"
    MEMBER = "it sends heartbeats, and has what it is assigned"
    LEAVING = "the application did not receive for too long: the group is told that it leaves"
    AWAY = "it has left, and joins again with the application's next receive"
    ENDED = "a newer member has its instance id, or a broker refuses it for good"


@unique
class MemberEvent(Enum):
    """Event that changes the phase of a member."""

    JOINED = "the group has taken it in"
    UNKNOWN = "the group does not know it"
    OVERDUE = "the application did not receive for too long"
    LEFT = "the group has heard that it leaves"
    CAME_BACK = "the application is there again"
    ENDED = "a newer member has its instance id, or a broker refuses it for good"


TRANSITIONS: Final[Mapping[tuple[MemberPhase, MemberEvent], MemberPhase]] = {
    (MemberPhase.JOINING, MemberEvent.JOINED): MemberPhase.MEMBER,
    (MemberPhase.MEMBER, MemberEvent.UNKNOWN): MemberPhase.JOINING,
    (MemberPhase.MEMBER, MemberEvent.OVERDUE): MemberPhase.LEAVING,
    (MemberPhase.LEAVING, MemberEvent.LEFT): MemberPhase.AWAY,
    (MemberPhase.LEAVING, MemberEvent.UNKNOWN): MemberPhase.AWAY,
    (MemberPhase.LEAVING, MemberEvent.CAME_BACK): MemberPhase.JOINING,
    (MemberPhase.AWAY, MemberEvent.CAME_BACK): MemberPhase.JOINING,
    (MemberPhase.JOINING, MemberEvent.ENDED): MemberPhase.ENDED,
    (MemberPhase.MEMBER, MemberEvent.ENDED): MemberPhase.ENDED,
    (MemberPhase.LEAVING, MemberEvent.ENDED): MemberPhase.ENDED,
    (MemberPhase.AWAY, MemberEvent.ENDED): MemberPhase.ENDED,
    (MemberPhase.ENDED, MemberEvent.ENDED): MemberPhase.ENDED,
    # The application came back before the group had heard that the member leaves.
    (MemberPhase.JOINING, MemberEvent.LEFT): MemberPhase.JOINING,
    # The group does not know a member that it refuses.
    (MemberPhase.JOINING, MemberEvent.UNKNOWN): MemberPhase.JOINING,
}


MACHINE: Final = Machine(TRANSITIONS, "a member")
