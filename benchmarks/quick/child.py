"""A Python program that is a client, in a process of its own, and says what it found, a line each.

This process draws a progress bar meanwhile, which would count for a client that it were itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parents[2]
END_WITHIN_S = 60.0
SAID_BYTES_MAX = 4_000


class ChildFailed(Exception):
    """It ended with another status than 0; the message has what it said last."""


def lines_of(module: str, *arguments: str) -> Generator[str]:
    """Yield the lines that a module of this package prints; closing the generator ends it.

    Raises:
        ChildFailed: it could not do what it was asked for.
    """
    command = [sys.executable, "-m", module, *arguments]
    # Servers say there, too, what is of interest only when something fails.
    with TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            # Ctrl-C reaches this process alone, which then ends the other one.
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            yield from process.stdout
            status = process.wait(END_WITHIN_S)
        finally:
            if process.poll() is None:
                # It removes its servers and their directory, and then ends: ended_by_signals.
                process.terminate()
                process.wait(END_WITHIN_S)
            assert process.stdout is not None
            process.stdout.close()
        if status != 0:
            said.seek(0)
            last = said.read()[-SAID_BYTES_MAX:].decode(errors="replace")
            raise ChildFailed(f"{module} ended with status {status}:\n{last}")
