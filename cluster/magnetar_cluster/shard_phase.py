"""The phases of a shard that a member has or asks for, and the one table that moves them. Pure.

Only `next_phase` reads the table, and only `HeldShard.move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from magnetar_core.transitions import step


@unique
class Phase(Enum):
    """Phase of a shard at a member, with its meaning."""

    CLAIMING = "the claim is under way, or its answer was lost"
    OPENING = "the claim is written; the shard's store is being opened and recovered"
    SERVING = "the shard is open, and takes conversations"
    CLOSING = "it is handed over: its conversations end, and its store is closed"
    ENDING = "it failed; what is left of it is let go of, and the claim stands until then"
    RELEASING = "nothing of it is open; the claim is being deleted"
    LOST_OPENING = "another member may have it; the opening ends, or what it has opened"
    LOST = "another member may have it; it ends at once, and writes nothing"
    GONE = "the member has closed all of it"


@unique
class PhaseEvent(Enum):
    """Event that changes the phase of a shard."""

    GRANTED = "the directory has written the claim"
    UNWANTED = "it has, and by now another member should have the shard"
    REFUSED = "another member has the shard"
    WITHDRAWN = "the member is about to stop, and does not ask again for an answer that was lost"
    OPENED = "the shard is open"
    NOT_OPENED = "it could not be opened"
    HAND_OVER = "another member should have it"
    CLOSED = "its store is closed, and everything in it durable"
    NOT_CLOSED = "it could not be closed in order, or not in time"
    FAILED = "it ended by itself: its store was fenced, or failed"
    ABANDONED = "everything of it is closed"
    RELEASED = "the directory has deleted the claim"
    TAKEN = "the lease has ended, or the directory says that the claim is gone"


TRANSITIONS: Final[Mapping[tuple[Phase, PhaseEvent], Phase]] = {
    (Phase.CLAIMING, PhaseEvent.GRANTED): Phase.OPENING,
    (Phase.CLAIMING, PhaseEvent.UNWANTED): Phase.RELEASING,
    (Phase.CLAIMING, PhaseEvent.REFUSED): Phase.GONE,
    (Phase.CLAIMING, PhaseEvent.WITHDRAWN): Phase.GONE,
    (Phase.CLAIMING, PhaseEvent.TAKEN): Phase.GONE,
    (Phase.OPENING, PhaseEvent.OPENED): Phase.SERVING,
    (Phase.OPENING, PhaseEvent.NOT_OPENED): Phase.RELEASING,
    (Phase.OPENING, PhaseEvent.TAKEN): Phase.LOST_OPENING,
    (Phase.SERVING, PhaseEvent.HAND_OVER): Phase.CLOSING,
    (Phase.SERVING, PhaseEvent.FAILED): Phase.ENDING,
    (Phase.SERVING, PhaseEvent.TAKEN): Phase.LOST,
    (Phase.CLOSING, PhaseEvent.CLOSED): Phase.RELEASING,
    (Phase.CLOSING, PhaseEvent.NOT_CLOSED): Phase.ENDING,
    (Phase.CLOSING, PhaseEvent.FAILED): Phase.ENDING,
    (Phase.CLOSING, PhaseEvent.TAKEN): Phase.LOST,
    (Phase.ENDING, PhaseEvent.ABANDONED): Phase.RELEASING,
    (Phase.ENDING, PhaseEvent.TAKEN): Phase.LOST,
    (Phase.RELEASING, PhaseEvent.RELEASED): Phase.GONE,
    (Phase.RELEASING, PhaseEvent.TAKEN): Phase.GONE,
    (Phase.LOST_OPENING, PhaseEvent.OPENED): Phase.LOST,
    (Phase.LOST_OPENING, PhaseEvent.NOT_OPENED): Phase.GONE,
    (Phase.LOST, PhaseEvent.ABANDONED): Phase.GONE,
}

# Phases in which the directory has a row of the shard, as far as the member knows.
OWNED: Final = frozenset(
    {Phase.OPENING, Phase.SERVING, Phase.CLOSING, Phase.ENDING, Phase.RELEASING}
)
# Those in whose name frames may leave, while the lease says so.
SPEAKING: Final = frozenset({Phase.OPENING, Phase.SERVING, Phase.CLOSING})


def next_phase(phase: Phase, event: PhaseEvent) -> Phase:
    """Return the phase after an event.

    Raises:
        InvalidTxnState: the event cannot happen in this phase. No effect.
    """
    return step(TRANSITIONS, phase, event, "a shard of a member")


@dataclass(slots=True)
class HeldShard:
    """A shard that a member has or asks for, from a claim to its end.

    Attributes:
        epoch: of the ownership; 0: not known yet.
        since_ms: when the phase began.
        reason: why it failed; empty: it did not.
        failed_early: it ended by itself before its opening was complete.
        handed_over: it went through CLOSING.
    """

    phase: Phase
    since_ms: float
    epoch: int = 0
    reason: str = ""
    failed_early: bool = False
    handed_over: bool = False

    def move(self, event: PhaseEvent, now_ms: float) -> None:
        """Change the phase by an event."""
        self.phase = next_phase(self.phase, event)
        self.since_ms = now_ms

    def can(self, event: PhaseEvent) -> bool:
        """Return whether an event is possible in the present phase."""
        return (self.phase, event) in TRANSITIONS
