"""The plan of a run: processes, faults, and how much has to happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.owners.plan import OwnersPlan

TOPICS = ("in", "mix", "out")
PARTITIONS = 2
TRANSACTIONS_MIN = 100
CRASHES_MIN = 5
# In so many runs shards have owners that change.
OWNERS_SHARE = 0.2
FAULTS = (
    "broker crash",
    "coordinator crash",
    "client crash",
    "link",
    "half-open",
    "congestion",
    "duplicate",
    "partition",
    "delays",
    "disk failure",
    "disk full",
    "disk stall",
    "clock jump",
)


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault as data: when it struck; the number decides whom, and how hard."""

    number: int
    at_s: float
    kind: str

    def __str__(self) -> str:
        return f"{self.at_s:10.6f} s fault {self.number}: {self.kind}"


@dataclass
class Plan:
    """What a run consists of. A family of seeds is a plan with a bias.

    Attributes:
        programs: how many processes run each program.
        fault_weights: how likely each fault is to be the next.
        fault_period_s: mean time between faults.
        tricks: what sloppy clients do; None: everything.
        topic_settings: of every topic.
        client_settings: of every SDK client, beside the simulation's own.
        broker_count: brokers of the cluster; the first one keeps the directory.
        owners: of a cluster whose shards change owners; None: each server keeps its disk.
        absent: names of client processes that are left out.
    """

    programs: dict[str, int] = field(default_factory=dict)
    fault_weights: dict[str, float] = field(default_factory=dict)
    fault_period_s: float = 0.12
    worker_type: str = "shared"
    tricks: tuple[Any, ...] | None = None
    topic_settings: dict[str, Any] = field(default_factory=dict)
    broker_settings: dict[str, Any] = field(default_factory=dict)
    coordinator_settings: dict[str, Any] = field(default_factory=dict)
    client_settings: dict[str, Any] = field(default_factory=dict)
    # Partitions of each topic, by its name.
    topics: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, PARTITIONS))
    broker_count: int = 1
    coordinator_count: int = 1
    owners: OwnersPlan | None = None
    transactions_min: int = TRANSACTIONS_MIN
    crashes_min: int = CRASHES_MIN
    # Of a run that is done again, or a part of it: these faults, until then, without these.
    strikes: tuple[Strike, ...] | None = None
    chaos_until_s: float = 0.0
    absent: frozenset[str] = frozenset()

    @classmethod
    def of_seed(cls, random: Random) -> Plan:
        """An ordinary run: some of everything, in proportions that differ from seed to seed."""
        weights = {fault: random.random() ** 2 for fault in FAULTS}
        for fault in random.sample(FAULTS, 3):
            weights[fault] = 0.0
        for fault in ("broker crash", "coordinator crash", "client crash"):
            weights[fault] = max(weights[fault], 0.15)
        plan = cls(
            programs={
                "atomic": random.randint(2, 3),
                "plain": random.randint(0, 2),
                "worker": random.randint(1, 2),
                "consumer": random.randint(1, 2),
                "sloppy": random.randint(1, 2),
                "dual": random.choice((0, 1, 2, 2)),
                "job": random.randint(0, 1),
                "terminator": random.randint(0, 1),
                "member": random.choice((0, 0, 2, 3)),
                "observer": 1,
                "inspector": 1,
            },
            fault_weights=weights,
            fault_period_s=random.choice((0.05, 0.1, 0.3)),
            worker_type=random.choice(("shared", "key_shared", "failover", "exclusive")),
            broker_count=random.choice((1, 1, 1, 2, 3)),
        )
        if random.random() < OWNERS_SHARE:
            plan.owners = OwnersPlan(
                broker_members=random.choice((2, 3)),
                loss=random.choice((0.0, 0.02)),
                lag_seconds_max=random.choice((0.01, 0.1, 1.0)),
                settling_ms=random.choice((200, 1_000)),
            )
        plan.programs["surveyor"] = random.choice((0, 1))
        return plan
