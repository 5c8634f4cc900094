"""Which faults strike whom and when: data that a seed decides. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

KILL = "kill"
PAUSE = "pause"
RESTART = "restart"
CUT = "cut off both ways"
DEAF = "cut off, hears nothing"
MUTE = "cut off, says nothing"
PARTED = "two cut off from each other"
HALF_PARTED = "one does not hear another"
JUMP = "clock jumps"
NO_OBJECTS = "object server killed"
SLOW_OBJECTS = "object server paused"
NO_ETCD = "member of etcd killed"
KINDS = (
    *(KILL, PAUSE, RESTART, CUT, DEAF, MUTE, PARTED, HALF_PARTED, JUMP),
    *(NO_OBJECTS, SLOW_OBJECTS, NO_ETCD),
)

# Some shorter than a lease, some longer.
LASTS_S = (0.5, 12.0)
GAP_S = (5.0, 11.0)
# Nobody else is struck until the last one has been well for so long, or not at all.
CALM_S = 1.0
JUMPS_MS = tuple(
    sign * seconds * 1_000 for sign in (1, -1) for seconds in (3, 90, 3_600, 86_400, 30 * 86_400)
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a plan.

    Attributes:
        at_s: since the faults began.
        lasts_s: until it is undone; a clock stays wrong until its next jump, or the end.
        jump_ms: how wrong the clock is from then on.
    """

    at_s: float
    kind: str
    targets: tuple[str, ...]
    lasts_s: float
    jump_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(
    seed: int, seconds: float, servers: Sequence[str], etcd: Sequence[str], objects: str
) -> list[Fault]:
    """All faults of a run, in order. Each kind comes once before any comes again.

    Two may overlap, of which the second begins while the first one lasts: not on the same target,
    and only of servers, so that somebody can go on.
    """
    random = Random(seed)
    found: list[Fault] = []
    deck: list[str] = []
    at_s = random.uniform(1.0, 3.0)
    while at_s < seconds - LASTS_S[1]:
        if not deck:
            deck = random.sample(KINDS, len(KINDS))
        kind = deck.pop()
        busy = {target for fault in found[-2:] if _lasts(fault, at_s) for target in fault.targets}
        free = [server for server in servers if server not in busy]
        if busy and (len(free) < len(servers) - 1 or kind in (NO_OBJECTS, SLOW_OBJECTS, NO_ETCD)):
            # It comes when it is calm.
            at_s = max(fault.at_s + fault.lasts_s for fault in found[-2:]) + CALM_S
            free = list(servers)
            if at_s >= seconds - LASTS_S[1]:
                break
        fault = Fault(
            round(at_s, 3),
            kind,
            tuple(_targets(random, kind, free, etcd, objects)),
            round(random.uniform(*LASTS_S), 3),
            random.choice(JUMPS_MS) if kind == JUMP else 0,
        )
        found.append(fault)
        at_s += random.uniform(*GAP_S)
        if random.random() < 0.2:
            at_s = fault.at_s + fault.lasts_s / 2
    return found


def _lasts(fault: Fault, at_s: float) -> bool:
    return fault.kind != JUMP and at_s < fault.at_s + fault.lasts_s + CALM_S


def _targets(
    random: Random, kind: str, servers: Sequence[str], etcd: Sequence[str], objects: str
) -> Sequence[str]:
    if kind in (NO_OBJECTS, SLOW_OBJECTS):
        return (objects,)
    if kind == NO_ETCD:
        return (random.choice(etcd),)
    if kind in (PARTED, HALF_PARTED):
        # What a server stands on is at the other end as often as another server.
        one = random.choice(servers)
        others = [other for other in (*servers, objects, *etcd) if other != one]
        return (one, random.choice(others))
    return (random.choice(servers),)
