"""Constants of a member that no operator has a reason to change. Tests give others. Pure.

A value that operators change is a setting in `host_settings`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConstants:
    """Constants of a member. A test gives its own with `HostSettings(constants=...)`."""

    # How long a handover waits for a shard to close, or for its next owner to claim it; never above
    # leaving_ms_max. A shard that does not close in time is abandoned: its next owner replays its
    # log.
    handover_ms_max: int = 30_000
    # Shards that a member that stops hands over at once: more would pause at the same time.
    leaving_handovers_max: int = 4

    # Pauses after a shard could not be opened, from the first one to the longest.
    opening_pause_ms_min: int = 500
    opening_pause_ms_max: int = 30_000
    # After so many openings and runs in a row that failed, or one opening that took too long, a
    # member refuses a shard, and others get it. While it refuses any, one failure is enough.
    opening_failures_max: int = 3
    # Pauses before a member tries one of the shards that it refuses again, from the first one to
    # the longest. Each attempt that fails costs the shard a pause of some seconds.
    refusal_pause_ms_min: int = 60_000
    refusal_pause_ms_max: int = 3_600_000

    # Pauses after etcd did not answer, from the first one to the longest.
    directory_pause_ms_min: int = 100
    directory_pause_ms_max: int = 1_000
