"""Finds the rows that moved between kept figures and today's. Pure.

A row has moved if both are true: the ranges of the rounds do not overlap, and the medians differ by
more than a limit. All measures are costs, so that more is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from benchmarks.quick.figures import ALL, PROCESSES, Key
from benchmarks.quick.kept import Figures

LIMIT = 0.15
# The spread of fewer rounds is not meaningful.
ROUNDS_MIN = 3
# A process's part of a workload's costs below which its figure is that of timers and threads which
# wake up anyway. It is compared as if it were so large.
PART_MIN = 0.05
# Of the median, between the least and the greatest round: from here on they hide much.
WIDE = 0.4


class Verdict(StrEnum):
    """The result of comparing today's rounds with the kept ones."""

    FASTER = "faster"
    SLOWER = "slower"
    AS_BEFORE = "as before"
    NEW = "no kept figure"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and range of the rounds of a row."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median=median(values), least=min(values), greatest=max(values))

    def overlaps(self, other: Spread) -> bool:
        return self.least <= other.greatest and other.least <= self.greatest

    def raised(self, floor: float) -> Spread:
        """Return the spread with each value raised to at least a floor."""
        return Spread.of([max(one, floor) for one in (self.least, self.median, self.greatest)])

    @property
    def is_wide(self) -> bool:
        return self.greatest - self.least > WIDE * self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row of the table.

    Attributes:
        kept: None if nothing is kept of it.
        ratio: today's median over the kept one; None without one, or if that is zero.
        is_small: of no account in its workload, before and today.
    """

    key: Key
    kept: Spread | None
    today: Spread
    ratio: float | None
    verdict: Verdict
    is_small: bool


def why_not_judged(kept: Figures, today: Figures) -> str | None:
    """The reason why figures cannot be judged; None if they can."""
    if _minor(kept.python) != _minor(today.python):
        return f"they are of {kept.python}, and this is {today.python}"
    if min(_rounds(kept), _rounds(today)) < ROUNDS_MIN:
        return f"it takes {ROUNDS_MIN} rounds, before and today"
    return None


def compared(
    kept: Figures | None, today: Figures, *, limit: float = LIMIT, is_judged: bool = True
) -> list[Comparison]:
    """Each of today's rows, beside what is kept of it.

    Args:
        limit: by which medians have to differ, as a part of the kept one.
        is_judged: False: no row has a verdict, although it has a ratio.
    """
    is_judged = is_judged and (kept is None or why_not_judged(kept, today) is None)
    return [_compared(key, kept, today, limit, is_judged) for key in today.rows]


def moved(kept: Spread, today: Spread, *, limit: float = LIMIT, floor: float = 0.0) -> Verdict:
    """Whether something is faster or slower than before.

    Args:
        floor: figures below it count as this.
    """
    kept, today = kept.raised(floor), today.raised(floor)
    change = _ratio(kept, today) - 1
    if kept.overlaps(today) or abs(change) <= limit:
        return Verdict.AS_BEFORE
    return Verdict.SLOWER if change > 0 else Verdict.FASTER


def no_longer_measured(kept: Figures, known: Sequence[str]) -> list[str]:
    """Workloads of which figures are kept, and that are gone."""
    return [one for one in kept.workloads if not {*one.split(" / ")} <= {*known}]


def _compared(
    key: Key, kept: Figures | None, today: Figures, limit: float, is_judged: bool
) -> Comparison:
    values = kept.rows.get(key) if kept is not None else None
    found = Spread.of(today.rows[key])
    floor = _floor(key, *((today,) if kept is None else (today, kept)))
    if values is None:
        return Comparison(
            key=key,
            kept=None,
            today=found,
            ratio=None,
            verdict=Verdict.NEW,
            is_small=found.median < floor,
        )
    before = Spread.of(values)
    return Comparison(
        key=key,
        kept=before,
        today=found,
        ratio=_ratio(before, found) if before.median > 0 else None,
        verdict=moved(before, found, limit=limit, floor=floor) if is_judged else Verdict.NOT_JUDGED,
        is_small=max(before.median, found.median) < floor,
    )


def _floor(key: Key, *figures: Figures) -> float:
    """Return the least value to which a figure of a process is raised; 0 for others."""
    if key.measure not in PROCESSES:
        return 0.0
    totals = [figure.rows.get(Key(key.workload, ALL)) for figure in figures]
    return max((PART_MIN * median(total) for total in totals if total), default=0.0)


def _ratio(kept: Spread, today: Spread) -> float:
    if kept.median > 0:
        return today.median / kept.median
    return math.inf if today.median > 0 else 1.0


def _rounds(figures: Figures) -> int:
    return min(map(len, figures.rows.values()), default=0)


def _minor(python: str) -> str:
    """Without the last part of the version."""
    return python.rpartition(".")[0]
