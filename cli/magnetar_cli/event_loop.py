"""The one event loop of a command, on which all of its conversations with servers run.

asyncio.run() makes a loop for each call and closes it. gRPC tells whatever loop runs of all events
of the process: one that comes late, for a loop that is closed, ends in a traceback on the terminal.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something to its end, on the same event loop as everything before it.

    An interrupt (Ctrl-C) cancels it, and comes as KeyboardInterrupt.
    """
    return _runner().run(work)


@cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner
