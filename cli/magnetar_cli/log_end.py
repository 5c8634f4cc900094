"""The end of a process's log, for messages that say why the process ended."""

from __future__ import annotations

from pathlib import Path

CHARACTERS_MAX = 2_000


def end_of_log(log: Path) -> str:
    """Return the last lines of a log, or a part of them if they are long."""
    return log.read_text(errors="replace").strip()[-CHARACTERS_MAX:]
