"""Settings of a member's part in the ownership of shards. Each states its unit and trade-off."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig, check_numbers

# Renewals within the time for which one of them lets a member speak.
RENEWALS_A_DURATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How a member takes, keeps and gives up shards."""

    # A member that does not renew its lease for this long loses its shards, and others open them;
    # after two thirds of it, it is silent. In whole seconds, as etcd counts. Shorter: a dead member
    # is replaced sooner. Longer: a pause of a process, or of etcd, is forgiven.
    lease_duration_ms: int = 3_000
    # A shard that shall lie at another member moves there when this has been so for this long.
    # Pins, drains and members that stop do not wait. Shorter: a new member gets its shards sooner.
    # Longer: fewer moves while members restart.
    settling_ms: int = 10_000
    # How long a handover waits for a shard to close, or for its next owner to claim it. A shard
    # that does not close in time is abandoned: its next owner replays its log.
    handover_ms_max: int = 30_000
    # How many shards a member that stops hands over at once. Higher: it stops sooner. Lower: fewer
    # shards pause at the same time.
    leaving_handovers_max: int = 4
    # How long a member that stops takes for all handovers. What is left then is abandoned: the next
    # owners replay its logs. At least handover_ms_max. Shorter: a stop is over sooner, as whoever
    # kills a server that does not stop may demand. Longer: many shards, or large ones, move in
    # order.
    leaving_ms_max: int = 60_000
    # Pauses after a shard could not be opened, from the first one to the longest. Shorter: it is
    # back sooner when its store is. Longer: fewer attempts at a store that is away.
    opening_pause_ms_min: int = 500
    opening_pause_ms_max: int = 30_000
    # An opening that takes longer fails, if another member may take the shard. Shorter: a member
    # that cannot reach the object store holds up its shards for less time. Longer: a shard whose
    # recovery takes long is opened by the first member that gets it.
    opening_ms_max: int = 60_000
    # After so many openings and runs in a row that failed, or one opening that took too long, a
    # member refuses a shard, and others get it. While it refuses any, one failure is enough. Lower:
    # others have the shard sooner. Higher: it stays where it belongs during short troubles.
    opening_failures_max: int = 3
    # Pauses before a member tries one of the shards that it refuses again, from the first one to
    # the longest. Each attempt that fails costs the shard a pause of some seconds. Shorter: the
    # member has its part again sooner when it can open shards.
    refusal_pause_ms_min: int = 60_000
    refusal_pause_ms_max: int = 3_600_000
    # Pauses after the directory did not answer, from the first one to the longest.
    directory_pause_ms_min: int = 100
    directory_pause_ms_max: int = 1_000

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("settling_ms",))
        if self.lease_duration_ms % 1_000:
            raise InvalidConfig("lease_duration_ms must be whole seconds: etcd counts leases so")
        if self.leaving_ms_max < self.handover_ms_max:
            raise InvalidConfig("leaving_ms_max must be at least handover_ms_max")
        for name in ("opening_pause_ms", "refusal_pause_ms", "directory_pause_ms"):
            if getattr(self, f"{name}_min") > getattr(self, f"{name}_max"):
                raise InvalidConfig(f"{name}_min must not exceed {name}_max")

    @property
    def renewal_interval_ms(self) -> float:
        """How often the lease is renewed: twice before the member would be silent."""
        return self.lease_duration_ms / RENEWALS_A_DURATION
