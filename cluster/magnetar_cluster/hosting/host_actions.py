"""Actions: decisions of a member about a shard. Pure.

Each object is one attempt. Its outcome is reported with the object itself, so that the outcome of
an attempt that no longer matters changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_cluster.directory.cluster_directory import LeaseId
from magnetar_cluster.directory.view import ShardName


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Ask the directory for a shard."""

    shard: ShardName
    lease: LeaseId


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """Open a shard that was claimed."""

    shard: ShardName
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    """End a shard in order."""

    shard: ShardName
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Abandon:
    """End a shard at once, and write nothing. An attempt to close it is over.

    Attributes:
        lost: another member may have it; otherwise it failed by itself.
    """

    shard: ShardName
    epoch: int
    lost: bool


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Delete a claim, when everything of the shard is closed."""

    shard: ShardName
    epoch: int


Action = Claim | Open | Close | Abandon | Release
