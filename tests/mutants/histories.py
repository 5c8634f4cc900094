"""Run histories one after the other and print what came of each, a line of JSON each.

Run as a process of its own: `python -m tests.mutants.histories FIRST END`. Which history has which
number is fixed: mostly short ones, and among them long seeds and those of the rules' families. The
servers' own assertions are not asked: a mistake is to be seen from outside.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any, NamedTuple

from tests.simulation.families import FAMILIES, make_world
from tests.simulation.short.runner import run_history
from tests.simulation.world import World

# One history of these in so many is a long one, or of a family.
LONG_EVERY = 40
# Of processor time; a sound one takes 5 s at most.
HISTORY_SECONDS_MAX = 30.0
MEMORY_BYTES_MAX = 4 << 30


class Endless(BaseException):
    """A history takes more processor time than any sound one."""


class History(NamedTuple):
    """Which one: `kind` is "short", "long", or the rule of a family."""

    kind: str
    seed: int

    def __str__(self) -> str:
        if self.kind in ("short", "long"):
            return f"{self.kind} {self.seed}"
        return f"family {self.kind} {self.seed}"


def history(number: int) -> History:
    """The history with a number, from 0 on."""
    turn, place = divmod(number, LONG_EVERY)
    if place < LONG_EVERY - 1:
        return History("short", turn * (LONG_EVERY - 1) + place)
    rules = sorted(FAMILIES)
    half, odd = divmod(turn, 2)
    return History(rules[half % len(rules)], half // len(rules)) if odd else History("long", half)


def run(one: History) -> tuple[str, str | None]:
    """The digest of its trace, and what was wrong in one line."""
    if one.kind == "short":
        outcome = run_history(one.seed, checks_servers=False)
        return outcome.digest, outcome.failure
    world = World(one.seed) if one.kind == "long" else make_world(one.kind, one.seed)
    world.checks_servers = False
    failure = None
    try:
        world.run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
    return world.trace.digest(), failure


def _give_up(*_: Any) -> None:
    raise Endless(f"more than {HISTORY_SECONDS_MAX:.0f} s of processor time")


def main() -> int:
    first, end = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.signal(signal.SIGPROF, _give_up)
    for number in range(first, end):
        # Again and again, should somebody catch it.
        signal.setitimer(signal.ITIMER_PROF, HISTORY_SECONDS_MAX, 1.0)
        started_at = time.process_time()
        digest, failure = run(history(number))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        seconds = time.process_time() - started_at
        print(json.dumps([number, digest, failure and failure[:300], seconds]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
