"""Run histories as they are asked for and print what came of each: a line of JSON in, one out.

Run as a process of its own: `python -m tests.mutants.histories`. Which history has which number is
fixed: mostly short ones, of one scenario or of any, and among them long ones and those of rules.
The servers' own assertions are not asked: a mistake is to be seen from outside.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any, NamedTuple

from tests.simulation.seeds import is_crash_at_once
from tests.simulation.short.catalogue import SCENARIOS
from tests.simulation.short.rules import RULES
from tests.simulation.short.runner import run_history

# One history of these in so many is a long one, or of a rule.
LONG_EVERY = 40
# Of processor time; a sound one takes 5 s at most.
HISTORY_SECONDS_MAX = 30.0
MEMORY_BYTES_MAX = 4 << 30


class Endless(BaseException):
    """A history takes more processor time than any sound one."""


class History(NamedTuple):
    """Which history.

    Attributes:
        kind: "short", "long" or "rule".
        of: its profile.
    """

    kind: str
    of: str
    seed: int

    def __str__(self) -> str:
        if self.of in ("any", "long"):
            return f"{self.kind} {self.seed}"
        return f"{self.kind} '{self.of}' {self.seed}"

    @property
    def is_short(self) -> bool:
        return self.kind == "short"


def history(number: int) -> History:
    """The history with a number, from 0 on."""
    turn, place = divmod(number, LONG_EVERY)
    if place < LONG_EVERY - 1:
        half, odd = divmod(turn * (LONG_EVERY - 1) + place, 2)
        scenarios = list(SCENARIOS)
        if not odd:
            return History("short", "any", half)
        return History("short", scenarios[half % len(scenarios)], half // len(scenarios))
    rules = [f"rule {letter}" for letter in RULES]
    half, odd = divmod(turn, 2)
    if not odd:
        return History("long", "long", half)
    return History("rule", rules[half % len(rules)], half // len(rules))


def share(job: int, jobs: int, count: int) -> list[int]:
    """What one of several processes runs of the first histories: each has its part of long ones."""
    return [one for one in range(count) if one // LONG_EVERY % jobs == job]


def run(one: History) -> tuple[str, str | None, bool]:
    """The digest of its trace, what was wrong in one line, and whether it was wrong at once."""
    outcome = run_history(one.seed, one.of, checks_servers=False)
    at_once = is_crash_at_once(outcome.failure, outcome.counts)
    return outcome.digest, outcome.failure, at_once


def bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.signal(signal.SIGPROF, _give_up)


def timed(one: History, seconds_max: float = HISTORY_SECONDS_MAX) -> tuple[Any, ...]:
    """Digest, failure, the seconds of processor time that it took, and whether it fell at once."""
    # Again and again, should somebody catch it.
    signal.setitimer(signal.ITIMER_PROF, seconds_max, 1.0)
    started_at = time.process_time()
    digest, failure, at_once = run(one)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return digest, failure and failure[:300], time.process_time() - started_at, at_once


def _give_up(*_: Any) -> None:
    raise Endless(f"more than {HISTORY_SECONDS_MAX:.0f} s of processor time")


def main() -> int:
    bound_memory()
    for line in sys.stdin:
        print(json.dumps(timed(History(*json.loads(line)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
