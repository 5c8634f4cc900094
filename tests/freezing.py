"""Processes that are frozen by SIGSTOP."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.waiting import wait_until


def freeze(pid: int) -> None:
    """Stop a process where it stands: its connections stay open, and it answers nothing.

    One thread of a process takes the signal and stops the others. Until that one gets a processor,
    the others go on, and may answer. So this waits until all threads have stopped.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands_still(pid))


def thaw(pid: int) -> None:
    """Let a frozen process continue."""
    os.kill(pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """Whether no thread runs: each is stopped (T), or has ended (Z, X)."""
    return all(_state(thread) in "TZX" for thread in Path(f"/proc/{pid}/task").iterdir())


def _state(thread: Path) -> str:
    try:
        content = (thread / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    # The name in parentheses may hold anything.
    return content.rpartition(")")[2].split()[0]
