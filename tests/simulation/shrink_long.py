"""Shrinks a failing long seed: the fewest faults and clients with which it still fails so.

A run's faults are data: each struck at a time, and its number decides the rest. Clients draw from
streams of their own, and so does each link: what is left out changes the others only by what they
have to do with it. What clients do comes from their programs, and is left as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, TextIO

from tests.simulation.families import make_world
from tests.simulation.plan import Strike
from tests.simulation.seeds import Failure
from tests.simulation.short.shrink import Shrinker
from tests.simulation.world import World

RUNS_MAX = 150
SECONDS_MAX = 180.0
# From the last fault until faults end.
REST_SECONDS = 0.5


@dataclass(frozen=True)
class LongScript:
    """A long run, or a part of one, as data.

    Attributes:
        strikes: None: as the seed draws them.
        clients: the names of those that take part.
        until_s: when faults end.
    """

    seed: int
    family: str | None
    strikes: tuple[Strike, ...]
    clients: tuple[str, ...]
    until_s: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LongScript:
        data = json.loads(text)
        data["strikes"] = tuple([Strike(**one) for one in data["strikes"]])
        data["clients"] = tuple(data["clients"])
        return cls(**data)

    def __str__(self) -> str:
        family = f" of family {self.family}" if self.family else ""
        lines = [f"seed {self.seed}{family}, faults until {self.until_s:.3f} s"]
        lines += [f"clients: {', '.join(self.clients) or 'none'}"]
        lines += [f"  {one}" for one in self.strikes]
        return "\n".join(lines)


@dataclass(frozen=True)
class LongOutcome:
    """What came of a run.

    Attributes:
        script: all that happened, as data.
    """

    script: LongScript
    failure: str | None
    traceback: str
    digest: str


class RunsLong(Protocol):
    def __call__(self, script: LongScript) -> LongOutcome: ...


def run_seed(seed: int, family: str | None = None, *, checks_servers: bool = True) -> LongOutcome:
    """Run a seed, and write down what happened."""
    world = make_world(family, seed) if family else World(seed)
    return _run(world, seed, family, checks_servers)


def run_long(
    script: LongScript, *, checks_servers: bool = True, out: TextIO | None = None
) -> LongOutcome:
    """Run a part of a seed."""
    family, seed = script.family, script.seed
    world = make_world(family, seed, out=out) if family else World(seed, out=out)
    world.plan.strikes = script.strikes
    world.plan.chaos_until_s = script.until_s
    world.plan.absent = frozenset(set(_clients(world)) - set(script.clients))
    return _run(world, seed, family, checks_servers)


def _run(world: World, seed: int, family: str | None, checks_servers: bool) -> LongOutcome:
    world.checks_servers = checks_servers
    failure, text = None, ""
    try:
        world.run()
    except BaseException as error:
        failure, text = Failure.of(error)
    until_s = world.chaos.until_s
    script = LongScript(
        seed,
        family,
        tuple(world.chaos.struck),
        tuple([one for one in _clients(world) if one not in world.plan.absent]),
        world.loop.time() if until_s is None else until_s,
    )
    return LongOutcome(script, failure, text, world.trace.digest())


def _clients(world: World) -> list[str]:
    return [
        f"{kind}-{number}" for kind, count in world.plan.programs.items() for number in range(count)
    ]


@dataclass(frozen=True)
class ShrunkLong:
    """What is left of a run, and how it fails."""

    script: LongScript
    outcome: LongOutcome
    run_count: int


def shrink_long(
    outcome: LongOutcome,
    *,
    run: RunsLong = run_long,
    now: Callable[[], float] = time.monotonic,
    progress: Callable[[str], None] = lambda _: None,
    seconds_max: float = SECONDS_MAX,
    runs_max: int = RUNS_MAX,
) -> ShrunkLong:
    """Leave out faults and clients as long as the rest fails in the same way.

    Args:
        progress: told in a line, after each run, what is left.
        seconds_max, runs_max: what is left then is the answer.
    """
    script = outcome.script

    def tell(part: LongScript) -> LongOutcome:
        found = run(part)
        progress(
            f"run {shrinker.run_count}: {len(part.strikes)} faults, {len(part.clients)} clients:"
            f" {'fails so' if shrinker.is_same(found.failure) else 'does not fail so'}"
        )
        return found

    shrinker: Shrinker[LongScript, LongOutcome] = Shrinker(
        outcome, tell, now, runs_max=runs_max, seconds_max=seconds_max
    )
    while not shrinker.exhausted():
        before = script
        script = _fewer_strikes(shrinker, script)
        script = _fewer_clients(shrinker, script)
        if (before.clients, before.strikes) == (script.clients, script.strikes):
            break
    last_s = max((one.at_s for one in script.strikes), default=0.0)
    shorter = replace(script, until_s=last_s + REST_SECONDS)
    if shorter.until_s < script.until_s and shrinker.fails(shorter):
        script = shorter
    return ShrunkLong(script, shrinker.outcome, shrinker.run_count)


def _fewer_strikes(shrinker: Shrinker[LongScript, LongOutcome], script: LongScript) -> LongScript:
    def with_only(strikes: Sequence[Strike]) -> LongScript:
        return replace(script, strikes=tuple(strikes))

    return with_only(shrinker.fewest(script.strikes, lambda some: shrinker.fails(with_only(some))))


def _fewer_clients(shrinker: Shrinker[LongScript, LongOutcome], script: LongScript) -> LongScript:
    def with_only(clients: Sequence[str]) -> LongScript:
        return replace(script, clients=tuple(clients))

    return with_only(shrinker.fewest(script.clients, lambda some: shrinker.fails(with_only(some))))
