"""The states of a partition that a group's member holds, and the one table that moves them. Pure.

Only `MACHINE` reads the table, and only `Held.move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0003-groups.md, The client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from magnetar_core.transitions import Machine


@unique
class Holding(Enum):
    """State of a partition that a member holds, with its meaning."""

    HELD = "it is the member's"
    REVOKED = "it is asked back; the application may still have something of it"
    RELEASING = "nothing more counts there; acks under way are being confirmed"
    GONE = "the member has settled or dropped all of its messages"


@unique
class HoldingEvent(Enum):
    """Event that changes the state of a partition."""

    ASKED_BACK = "the member's assignment no longer names it"
    KEPT = "the assignment names it again, since the same generation"
    SETTLED = "nothing of it is open: it can be released"
    RELEASED = "acks are confirmed, and the consumer is detached"
    LOST = "another member has it, or the membership is over"


TRANSITIONS: Final[Mapping[tuple[Holding, HoldingEvent], Holding]] = {
    (Holding.HELD, HoldingEvent.ASKED_BACK): Holding.REVOKED,
    (Holding.REVOKED, HoldingEvent.KEPT): Holding.HELD,
    (Holding.REVOKED, HoldingEvent.SETTLED): Holding.RELEASING,
    (Holding.RELEASING, HoldingEvent.RELEASED): Holding.GONE,
    (Holding.HELD, HoldingEvent.LOST): Holding.GONE,
    (Holding.REVOKED, HoldingEvent.LOST): Holding.GONE,
    (Holding.RELEASING, HoldingEvent.LOST): Holding.GONE,
}


MACHINE: Final = Machine(TRANSITIONS, "a partition of a member")


@dataclass(slots=True)
class Held:
    """A partition that a member has.

    Attributes:
        since: the generation in which the member got it.
        done: for a REVOKED partition, whether the application has finished with its messages.
    """

    since: int
    state: Holding = Holding.HELD
    done: bool = False

    def move(self, event: HoldingEvent) -> None:
        """Change the state by an event."""
        self.state = MACHINE.next(self.state, event)
