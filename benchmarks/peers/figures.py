"""Figures of the comparison: those of a single round, and the rounds of a line together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

# The keys of a latency, as the clients give them.
QUANTILES = ("p50", "p99", "p99.9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Measurements of one client in one round.

    Attributes:
        system, durability: whose servers they were.
        row, variant: what was done, the same for all systems.
        way: the client's language, and the kind of its calls.
        scale: the number that the row's variants vary.
        count: messages or transactions that were finished.
        seconds: how long that took.
        expected, arrived: messages, by what was sent, and by the partitions' offsets.
        latencies_ms: by what was timed, and by QUANTILES.
        server_cpu_s, client_cpu_s: processor time, user and system.
        memory_bytes: the most that the servers had resident together.
        others_cpus: processors that programs other than servers and client used meanwhile.
    """

    system: str
    durability: str
    row: str
    variant: str
    way: str
    scale: int | None
    count: int
    seconds: float
    expected: int
    arrived: int
    latencies_ms: dict[str, dict[str, float]]
    server_cpu_s: float
    client_cpu_s: float
    memory_bytes: int
    others_cpus: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def server_cpu_s_per_million(self) -> float:
        return self.server_cpu_s / max(self.count, 1) * 1e6

    @property
    def client_cpu_s_per_million(self) -> float:
        return self.client_cpu_s / max(self.count, 1) * 1e6

    @property
    def memory_mib(self) -> float:
        return self.memory_bytes / (1 << 20)

    @property
    def is_whole(self) -> bool:
        """Whether just what was sent has arrived."""
        return self.arrived == self.expected

    @property
    def line(self) -> tuple[str, str, str, str, str]:
        """The identity of the line, which all its repetitions share."""
        return self.row, self.variant, self.system, self.durability, self.way


@dataclass(frozen=True, slots=True)
class Line:
    """All rounds of one line; there is at least one."""

    rounds: tuple[Figure, ...]

    @property
    def first(self) -> Figure:
        """The first round: for the attributes that all rounds share."""
        return self.rounds[0]

    @property
    def is_whole(self) -> bool:
        return all(one.is_whole for one in self.rounds)

    def values(self, attribute: str) -> list[float]:
        return [getattr(one, attribute) for one in self.rounds]

    def median(self, attribute: str) -> float:
        return median(self.values(attribute))

    def best_per_s(self) -> float:
        """The best round, since a JVM goes on getting faster."""
        return max(self.values("per_s"))

    def latency_names(self) -> list[str]:
        return list(self.first.latencies_ms)

    def latency_ms(self, name: str, quantile: str) -> float:
        """The median of the rounds' quantiles."""
        return median(one.latencies_ms[name][quantile] for one in self.rounds)


def gathered(figures: Sequence[Figure]) -> list[Line]:
    """Lines with their rounds: those of a row and variant together, in the order of measurement."""
    lines: dict[tuple[str, str, str, str, str], list[Figure]] = {}
    for figure in figures:
        lines.setdefault(figure.line, []).append(figure)
    places = {line[:2]: number for number, line in reversed(list(enumerate(lines)))}
    rows = {line[0]: number for number, line in reversed(list(enumerate(lines)))}
    ordered = sorted(lines, key=lambda line: (rows[line[0]], places[line[:2]]))
    return [Line(tuple(lines[line])) for line in ordered]


def to_json(figures: Sequence[Figure]) -> str:
    """Every round, in the order of measurement."""
    return json.dumps([asdict(figure) for figure in figures], indent=2)


def from_json(text: str) -> list[Figure]:
    """Read figures that to_json wrote."""
    return [Figure(**one) for one in json.loads(text)]


def parsed(
    said: dict[str, Any],
    *,
    system: str,
    durability: str,
    row: str,
    variant: str,
    way: str,
    scale: int | None,
    server_cpu_s: float,
    memory_bytes: int,
    others_cpus: float,
) -> Figure:
    """A figure of what a client said at the end of a round, and of what was seen from outside."""
    return Figure(
        system=system,
        durability=durability,
        row=row,
        variant=", ".join(one for one in (variant, said.get("variant", "")) if one),
        way=way,
        scale=scale,
        count=said["count"],
        seconds=said["seconds"],
        expected=said["expected"],
        arrived=said["arrived"],
        latencies_ms={
            name: {quantile: float(found[quantile]) for quantile in QUANTILES}
            for name, found in said["latencies_ms"].items()
        },
        server_cpu_s=server_cpu_s,
        client_cpu_s=said["client_cpu_s"],
        memory_bytes=memory_bytes,
        others_cpus=others_cpus,
    )
