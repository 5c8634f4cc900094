"""Run a short history: `run_history(seed, profile)` is the entry for every tool."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import TextIO

from tests.simulation.poison import poison
from tests.simulation.seeds import Failure
from tests.simulation.short.catalogue import VERBS, make_script
from tests.simulation.short.script import Script
from tests.simulation.short.settings import constants
from tests.simulation.world import World


@dataclass(frozen=True)
class Outcome:
    """What came of one history.

    Attributes:
        digest: of everything that arrived anywhere, and when; also of a run that failed.
        failure: None, or one line that says what is wrong.
        traceback: where that was found out.
        active: how often which situations came about.
        cpu_seconds: of this process.
    """

    seed: str
    profile: str
    scenarios: tuple[str, ...]
    digest: str
    failure: str | None
    traceback: str
    counts: Counter[str]
    faults: Counter[str]
    active: Counter[str]
    virtual_seconds: float
    step_count: int
    cpu_seconds: float


def run_history(
    seed: int | str,
    profile: str = "any",
    *,
    checks_servers: bool = True,
    out: TextIO | None = None,
) -> Outcome:
    """Write the history of a seed and run it.

    Args:
        checks_servers: also ask the servers' own assertions; off where a planted bug is to be seen
            from outside.
        out: where a readable trace goes.
    """
    started_at = time.process_time()
    script = make_script(seed, profile)
    return run_script(script, checks_servers=checks_servers, out=out, started_at=started_at)


@contextmanager
def _stack(frames_max: int | None) -> Iterator[None]:
    """Let the stack grow by no more than so many frames."""
    if frames_max is None:
        yield
        return
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames_max)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def run_script(
    script: Script,
    *,
    checks_servers: bool = True,
    out: TextIO | None = None,
    started_at: float | None = None,
) -> Outcome:
    """Run a history, or a part of one."""
    if started_at is None:
        started_at = time.process_time()
    failure, text = None, ""
    with (
        constants(script.settings["constants"]),
        poison(Random(f"poison {script.profile} {script.seed}")),
        _stack(script.flags.get("stack_frames_max")),
    ):
        world = World(script, VERBS, out=out)
        world.checks_servers = checks_servers
        try:
            world.run()
        except BaseException as error:
            failure, text = Failure.of(error)
    return Outcome(
        seed=script.seed,
        profile=script.profile,
        scenarios=script.scenarios,
        digest=world.trace.digest(),
        failure=failure,
        traceback=text,
        counts=Counter(world.history.counts),
        faults=Counter(world.network.faults),
        active=Counter(world.provoked),
        virtual_seconds=world.loop.time(),
        step_count=world.loop.step_count,
        cpu_seconds=time.process_time() - started_at,
    )
