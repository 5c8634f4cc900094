"""Knowledge of a member about one shard, which any member may have."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_cluster.host_actions import Action
from magnetar_cluster.shard_phase import HeldShard


@dataclass(slots=True)
class Slot:
    """Knowledge of a member about one shard, which any member may have.

    Attributes:
        held: what the member has of it; None: nothing.
        action: the attempt that is under way; None: none is.
        unanswered: claims or releases in a row whose answers were lost.
        again_at_ms: when the next of them may begin.
        failures: openings and runs in a row that failed.
        reason: of the last failure; empty: it was opened since, and has not failed.
        claim_after_ms: when the shard may be claimed again.
        gone_epoch: all ownerships of this member up to this epoch have ended.
        elsewhere: the other member that should have it, and since when; None: no other.
        taken_by_ms: until when the next owner of a shard that was handed over is waited for.
        overdue: why its opening is no longer waited for; empty: it is.
    """

    held: HeldShard | None = None
    action: Action | None = None
    unanswered: int = 0
    again_at_ms: float = 0.0
    failures: int = 0
    reason: str = ""
    claim_after_ms: float = 0.0
    gone_epoch: int = 0
    elsewhere: tuple[str, float] | None = None
    taken_by_ms: float | None = None
    overdue: str = ""
