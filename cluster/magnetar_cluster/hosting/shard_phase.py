"""The phases of a shard that a member has or asks for, and the one table that moves them. Pure.

Only `MACHINE` reads the table, and only `HeldShard.move` stores what it says. The drawing is
docs/protocol/states.md.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from magnetar_core.transitions import Machine


@unique
class ShardPhase(Enum):
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
class ShardEvent(Enum):
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


TRANSITIONS: Final[Mapping[tuple[ShardPhase, ShardEvent], ShardPhase]] = {
    (ShardPhase.CLAIMING, ShardEvent.GRANTED): ShardPhase.OPENING,
    (ShardPhase.CLAIMING, ShardEvent.UNWANTED): ShardPhase.RELEASING,
    (ShardPhase.CLAIMING, ShardEvent.REFUSED): ShardPhase.GONE,
    (ShardPhase.CLAIMING, ShardEvent.WITHDRAWN): ShardPhase.GONE,
    (ShardPhase.CLAIMING, ShardEvent.TAKEN): ShardPhase.GONE,
    (ShardPhase.OPENING, ShardEvent.OPENED): ShardPhase.SERVING,
    (ShardPhase.OPENING, ShardEvent.NOT_OPENED): ShardPhase.RELEASING,
    (ShardPhase.OPENING, ShardEvent.TAKEN): ShardPhase.LOST_OPENING,
    (ShardPhase.SERVING, ShardEvent.HAND_OVER): ShardPhase.CLOSING,
    (ShardPhase.SERVING, ShardEvent.FAILED): ShardPhase.ENDING,
    (ShardPhase.SERVING, ShardEvent.TAKEN): ShardPhase.LOST,
    (ShardPhase.CLOSING, ShardEvent.CLOSED): ShardPhase.RELEASING,
    (ShardPhase.CLOSING, ShardEvent.NOT_CLOSED): ShardPhase.ENDING,
    (ShardPhase.CLOSING, ShardEvent.FAILED): ShardPhase.ENDING,
    (ShardPhase.CLOSING, ShardEvent.TAKEN): ShardPhase.LOST,
    (ShardPhase.ENDING, ShardEvent.ABANDONED): ShardPhase.RELEASING,
    (ShardPhase.ENDING, ShardEvent.TAKEN): ShardPhase.LOST,
    (ShardPhase.RELEASING, ShardEvent.RELEASED): ShardPhase.GONE,
    (ShardPhase.RELEASING, ShardEvent.TAKEN): ShardPhase.GONE,
    (ShardPhase.LOST_OPENING, ShardEvent.OPENED): ShardPhase.LOST,
    (ShardPhase.LOST_OPENING, ShardEvent.NOT_OPENED): ShardPhase.GONE,
    (ShardPhase.LOST, ShardEvent.ABANDONED): ShardPhase.GONE,
}

# Phases in which the directory has a row of the shard, as far as the member knows.
OWNED: Final = frozenset(
    {
        ShardPhase.OPENING,
        ShardPhase.SERVING,
        ShardPhase.CLOSING,
        ShardPhase.ENDING,
        ShardPhase.RELEASING,
    }
)
# Those in whose name frames may leave, while the lease says so.
SPEAKING: Final = frozenset({ShardPhase.OPENING, ShardPhase.SERVING, ShardPhase.CLOSING})


MACHINE: Final = Machine(TRANSITIONS, "a shard of a member")


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

    phase: ShardPhase
    since_ms: float
    epoch: int = 0
    reason: str = ""
    failed_early: bool = False
    handed_over: bool = False

    def move(self, event: ShardEvent, now_ms: float) -> None:
        """Change the phase by an event."""
        self.phase = MACHINE.next(self.phase, event)
        self.since_ms = now_ms

    def can(self, event: ShardEvent) -> bool:
        """Return whether an event is possible in the present phase."""
        return MACHINE.can(self.phase, event)
