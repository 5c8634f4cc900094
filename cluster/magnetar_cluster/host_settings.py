"""Settings of a member's part in the ownership of shards.

Each says what a higher and a lower value cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_cluster.constants import HostConstants
from magnetar_core.config import InvalidConfig, check_numbers

# Renewals within the time for which one of them lets a member speak.
RENEWALS_A_DURATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Settings of taking, keeping and giving up shards."""

    # Time without a renewal after which a member loses its shards, and others open them. After two
    # thirds of it the member answers nothing. In whole seconds, as etcd counts. Higher: a pause of
    # a process, or of etcd, costs no shards. Lower: a dead member is replaced sooner.
    lease_duration_ms: int = 3_000
    # Time after which a shard moves to the member that should have it. Pins, drains and members
    # that stop do not wait. Higher: fewer moves while members restart. Lower: a new member gets its
    # shards sooner.
    settling_ms: int = 10_000
    # Longest time that a member that stops takes to hand over its shards. It abandons the rest, and
    # their next owners replay the logs. Give a supervisor that kills processes a longer
    # grace period (stop_grace_period of Compose, terminationGracePeriodSeconds of Kubernetes).
    # Higher: many shards, or large ones, move in order. Lower: a stop ends sooner.
    leaving_ms_max: int = 60_000
    # Longest time that the opening of a shard may take while another member could open it; then it
    # counts as failed, and another member gets the shard. Higher: a long recovery ends where it
    # began. Lower: a member that does not reach the object store delays its shards for less time.
    opening_ms_max: int = 60_000

    constants: HostConstants = field(default_factory=HostConstants)

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("settling_ms",))
        if self.lease_duration_ms % 1_000:
            raise InvalidConfig("lease_duration_ms must be whole seconds: etcd counts leases so")

    @property
    def handover_ms_max(self) -> int:
        """The longest time for which a handover waits for one of its steps."""
        return min(self.constants.handover_ms_max, self.leaving_ms_max)

    @property
    def renewal_interval_ms(self) -> float:
        """The time between renewals of the lease: two fit in before the member falls silent."""
        return self.lease_duration_ms / RENEWALS_A_DURATION
