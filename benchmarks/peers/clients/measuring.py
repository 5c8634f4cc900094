"""The common parts of the clients in Python: their task, and their rounds.

`java/Shared.java` is the same for the clients in Java.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

CHUNK_MESSAGES = 1_000
COMMIT_PERIOD_S = 0.1
PROBE_PERIOD_S = 0.02
PACE_S = 0.001
ARRIVAL_PATIENCE_S = 60.0
POLL_S = 0.02
# Transactions that are left open are begun so many at a time.
OPENED_AT_ONCE = 16


class Task:
    """The settings of a piece of work, from arguments of the form name=value."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._settings = dict(argument.split("=", 1) for argument in arguments)
        self.topic = self._settings["topic"]
        self.partitions = self.number("partitions")
        self.call = self._settings["call"]

    def text(self, name: str) -> str:
        return self._settings[name]

    def number(self, name: str, otherwise: int | None = None) -> int:
        if otherwise is not None and name not in self._settings:
            return otherwise
        return int(self._settings[name])

    @property
    def value(self) -> bytes:
        """The content of a message."""
        return bytes(self.number("message_bytes"))

    def rounds(self) -> Iterator[tuple[bool, float]]:
        """Whether a round is measured, and how many seconds it lasts; the first is to warm up."""
        yield False, float(self._settings["warm_up_seconds"])
        for _ in range(self.number("rounds")):
            yield True, float(self._settings["seconds"])

    def readings(self) -> Iterator[bool]:
        """Whether a reading of a whole stream is measured; to warm up, at least one is not."""
        warm_at_s = time.perf_counter() + float(self._settings["warm_up_seconds"])
        yield False
        while time.perf_counter() < warm_at_s:
            yield False
        for _ in range(self.number("rounds")):
            yield True


class Round:
    """A measured stretch of time; the parent process measures the servers meanwhile."""

    def __init__(self, *, measured: bool = True) -> None:
        self._measured = measured
        self._elapsed_s = 0.0
        if measured:
            say({"event": "begin"})
        self._cpu_s = time.process_time()
        self._began_s = time.perf_counter()

    def end(self) -> None:
        self._elapsed_s = time.perf_counter() - self._began_s
        self._cpu_s = time.process_time() - self._cpu_s
        if self._measured:
            say({"event": "end"})

    def result(
        self,
        count: int,
        expected: int,
        arrived: int,
        latencies_s: Mapping[str, list[float]] | None = None,
        variant: str = "",
    ) -> None:
        """Tell what was measured, and how many messages are there by their offsets."""
        if self._measured:
            say(
                {
                    "event": "result",
                    "variant": variant,
                    "count": count,
                    "expected": expected,
                    "arrived": arrived,
                    "seconds": self._elapsed_s,
                    "client_cpu_s": self._cpu_s,
                    "latencies_ms": {
                        name: quantiles_ms(found) for name, found in (latencies_s or {}).items()
                    },
                }
            )


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    """Quantiles of what was measured; zeros of nothing."""
    ordered = sorted(seconds) or [0.0]
    found: dict[str, float] = {"count": len(seconds)}
    for name, fraction in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        found[name] = ordered[min(int(len(ordered) * fraction), len(ordered) - 1)] * 1_000
    return found


def awaited(expected: int, arrived: Callable[[], int]) -> int:
    """Wait until as many messages as expected have arrived, or too long; return their number."""
    deadline_s = time.monotonic() + ARRIVAL_PATIENCE_S
    while (found := arrived()) != expected and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    return found


def say(event: Mapping[str, object]) -> None:
    """Print an event in a line of its own."""
    print(json.dumps(event), flush=True)


def wait_for_line() -> None:
    """Wait until the parent process says that it has done its part."""
    sys.stdin.readline()
