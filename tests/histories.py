"""Histories that real servers wrote, judged when a test is over."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from magnetar_cli.check.history.judging import Report, Verdict, judge

VARIABLE = "MAGNETAR_HISTORY_DIR"


def settings_in(directory: Path) -> dict[str, str]:
    """Have servers write their histories below a directory."""
    return {VARIABLE: str(history_in(directory))}


def history_in(directory: Path) -> Path:
    """Return the directory of histories."""
    return directory / "history"


def check_history(directory: Path) -> Report:
    """Servers did what the protocol allows, in all of their lives."""
    report = judge([str(history_in(directory))])
    shown = json.dumps(asdict(report), indent=1, default=str)
    assert report.verdict is Verdict.ACCEPTED, shown[:8_000]
    return report
