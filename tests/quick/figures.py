"""Figures and rounds that were never measured."""

from __future__ import annotations

from benchmarks.quick.figures import CALIBRATION_REFERENCE_S, Key, Measured
from benchmarks.quick.kept import Figures

PYTHON = "CPython 3.11.7"


def measured(
    workload: str = "produce-100",
    *,
    cpu_s: tuple[float, float, float] = (0.3, 0.2, 0.0),
    count: int = 100_000,
    elapsed_s: float = 1.0,
    calibration_s: float = CALIBRATION_REFERENCE_S,
) -> Measured:
    return Measured(
        workload=workload,
        count=count,
        elapsed_s=elapsed_s,
        cpu_s=cpu_s,
        calibration_s=calibration_s,
    )


def figures(
    rows: dict[tuple[str, str], tuple[float, ...]], *, python: str = PYTHON, cores: int = 2
) -> Figures:
    return Figures(
        date="2026-11-23",
        commit="4bcbf14",
        python=python,
        cores=cores,
        calibration_ms=11.5,
        rows={Key(*key): values for key, values in rows.items()},
    )
