"""Under which circumstances figures are taken."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median

from benchmarks.quick.figures import Measured, rows_of
from benchmarks.quick.kept import Figures

ROOT = Path(__file__).parents[2]


def figures_of(rounds: Sequence[Sequence[Measured]]) -> Figures:
    """The rows of rounds that this machine has just done."""
    calibrations_s = [one.calibration_s for measured in rounds for one in measured]
    return Figures(
        date=date.today().isoformat(),
        commit=commit(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cores=os.cpu_count() or 1,
        calibration_ms=median(calibrations_s) * 1e3,
        rows=rows_of(rounds),
    )


def commit(root: Path = ROOT) -> str:
    """Return the short commit id, and whether files differ; "unknown" outside a repository."""
    try:
        head = _git(root, "rev-parse", "--short", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changed else head


def _git(root: Path, *arguments: str) -> str:
    found = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()
