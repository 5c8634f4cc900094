"""From what rounds measured to the rows that are compared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Figures are as if a calibration pass took so long here.
CALIBRATION_REFERENCE_S = 0.02
PROCESSES = ("client", "broker", "coordinator")
ALL = "all three"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A workload in a round.

    Attributes:
        workload: its name.
        count: messages or transactions, at least one.
        elapsed_s: until the last one was done.
        cpu_s: processor time of each of PROCESSES.
        calibration_s: processor time of a calibration pass at that time.
    """

    workload: str
    count: int
    elapsed_s: float
    cpu_s: tuple[float, ...]
    calibration_s: float

    @property
    def costs_us(self) -> tuple[float, ...]:
        """Adjusted processor time of each of PROCESSES for each message or transaction."""
        factor = 1e6 / self.count * CALIBRATION_REFERENCE_S / self.calibration_s
        return tuple(one * factor for one in self.cpu_s)

    @property
    def cost_us(self) -> float:
        return sum(self.costs_us)

    @property
    def elapsed_us(self) -> float:
        """For each message or transaction, as the clock tells it."""
        return self.elapsed_s * 1e6 / self.count


@dataclass(frozen=True, slots=True)
class Key:
    """The subject of a row.

    Attributes:
        workload: its name, or the names of two with a slash.
        measure: what is measured of it.
    """

    workload: str
    measure: str


# Each divided by the other one, in these measures.
RATIOS = (
    ("commits-100", "produce-100"),
    ("enqueue-100", "produce-100"),
    ("consume-each", "consume-columns"),
    ("transactions-64", "transactions-1"),
)
RATIO_MEASURES: Mapping[str, Callable[[Measured], float]] = {
    "processor time": lambda one: one.cost_us,
    "elapsed time": lambda one: one.elapsed_us,
}

# For each row its value in each round.
Rows = dict[Key, tuple[float, ...]]


def rows_of(rounds: Sequence[Sequence[Measured]]) -> Rows:
    """The rows of rounds that did the same workloads: first theirs in order, then the ratios."""
    rows: dict[Key, list[float]] = {}
    for measured in rounds:
        for one in measured:
            for process, cost_us in zip(PROCESSES, one.costs_us, strict=True):
                rows.setdefault(Key(one.workload, process), []).append(cost_us)
            rows.setdefault(Key(one.workload, ALL), []).append(one.cost_us)
    for measured in rounds:
        found = {one.workload: one for one in measured}
        for name, other in RATIOS:
            if name in found and other in found:
                for measure, value in RATIO_MEASURES.items():
                    ratio = value(found[name]) / value(found[other])
                    rows.setdefault(Key(f"{name} / {other}", measure), []).append(ratio)
    return {key: tuple(values) for key, values in rows.items()}
