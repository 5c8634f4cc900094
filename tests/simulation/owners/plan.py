"""What a cluster with owners consists of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnersPlan:
    """How many members there are, and how bad the directory is.

    Attributes:
        broker_members, coordinator_members: how many processes of each kind there are.
        loss: how likely a call of the directory, or its answer, is lost.
        lag_seconds_max: of views on their way.
        settling_ms: how long a wish lasts before a shard moves.
    """

    broker_members: int = 2
    coordinator_members: int = 2
    loss: float = 0.0
    lag_seconds_max: float = 0.05
    settling_ms: int = 200
