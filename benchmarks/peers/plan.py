"""The amount of measurements: the command line's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amounts of work; `python -m benchmarks.peers --help` says what each means."""

    seconds: float
    warm_up_seconds: float
    rounds: int
    repeat: int
    at_once: tuple[int, ...]
    growth_partitions: tuple[int, ...]
    growth_producers: tuple[int, ...]
    growth_open: tuple[int, ...]
    stream_bytes: int
    stored_messages: int
    tail_rate: int
    data_dir: Path | None

    def messages(self, message_bytes: int) -> int:
        """Return the number of messages of a size in a stream that is read."""
        return max(self.stream_bytes // message_bytes, 10_000)

    @property
    def client_s(self) -> float:
        """The time of all rounds of a client whose rounds last for a given time."""
        return self.warm_up_seconds + self.rounds * self.seconds


# So little work that it shows only that everything works; what is asked for explicitly stays.
QUICK: Mapping[str, object] = {
    "seconds": 1.0,
    "warm_up_seconds": 0.5,
    "rounds": 1,
    "repeat": 1,
    "at_once": (1, 16),
    "growth_partitions": (1, 16, 100),
    "growth_producers": (1, 4),
    "growth_open": (1, 100),
    "stream_bytes": 2_000_000,
    "stored_messages": 10_000,
    "tail_rate": 1_000,
}
