"""Processes with a session of their own, which end with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any


def kill_session(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started with start_new_session, and whatever it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # All of them have ended.
    process.wait()
