"""Figures in a file, with the circumstances under which they were taken."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from benchmarks.quick.figures import Key, Rows

# To be raised when a workload, the calibration pass or a ratio changes its meaning: older and newer
# figures are then not comparable.
FORMAT = 1
# Digits of a figure that are kept.
DIGITS = 5


class Unusable(Exception):
    """The file cannot be compared with; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The rows of some rounds.

    Attributes:
        date: of the run, as 2026-11-23.
        commit: that was checked out, in short.
        python: implementation and version.
        cores: of the machine.
        calibration_ms: processor time of a calibration pass there, the median.
        rows: in the order in which they are shown.
    """

    date: str
    commit: str
    python: str
    cores: int
    calibration_ms: float
    rows: Rows

    @property
    def workloads(self) -> list[str]:
        """The workloads of the rows, each once."""
        return list(dict.fromkeys(key.workload for key in self.rows))


def to_plain(figures: Figures) -> dict[str, Any]:
    """For JSON."""
    rows: dict[str, dict[str, list[float]]] = {}
    for key, values in figures.rows.items():
        kept = [float(f"{value:.{DIGITS}g}") for value in values]
        rows.setdefault(key.workload, {})[key.measure] = kept
    return {
        "format": FORMAT,
        "date": figures.date,
        "commit": figures.commit,
        "python": figures.python,
        "cores": figures.cores,
        "calibration_ms": round(figures.calibration_ms, 3),
        "rows": rows,
    }


def to_json(figures: Figures) -> str:
    """A line for each row, so that a difference of two files can be read."""
    told = to_plain(figures)
    rows = told.pop("rows")
    head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in told.items())
    workloads = ",\n".join(
        f"  {json.dumps(workload)}: {{\n"
        + ",\n".join(
            f"   {json.dumps(measure)}: {json.dumps(values)}" for measure, values in found.items()
        )
        + "\n  }"
        for workload, found in rows.items()
    )
    return f'{{\n{head} "rows": {{\n{workloads}\n }}\n}}\n'


def from_json(text: str) -> Figures:
    """Read figures that to_json wrote.

    Raises:
        Unusable: it is of another format, or damaged.
    """
    try:
        told = json.loads(text)
        if told["format"] != FORMAT:
            raise Unusable(f"has format {told['format']}, and this program has {FORMAT}")
        rows = {
            Key(workload, measure): tuple(map(float, values))
            for workload, found in told["rows"].items()
            for measure, values in found.items()
        }
        figures = Figures(
            date=str(told["date"]),
            commit=str(told["commit"]),
            python=str(told["python"]),
            cores=int(told["cores"]),
            calibration_ms=float(told["calibration_ms"]),
            rows=rows,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"is damaged: {error!r}") from error
    for key, values in rows.items():
        if not values or not all(math.isfinite(value) and value >= 0 for value in values):
            raise Unusable(f"is damaged: {key.workload}, {key.measure}: {list(values)}")
    return figures
