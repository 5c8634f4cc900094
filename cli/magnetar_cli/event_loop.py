"""The one event loop of a command, on which all of its conversations with servers run.

asyncio.run() makes a loop for each call and closes it. gRPC tells whatever loop runs of all events
of the process: one that comes late, for a loop that is closed, ends in a traceback on the terminal.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

Result = TypeVar("Result")

_KEY = "magnetar_cli.event_loop"


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something to its end, on the same event loop as everything before it in this command.

    An interrupt (Ctrl-C) cancels it, and comes as KeyboardInterrupt.
    """
    context = click.get_current_context().find_root()
    runner: asyncio.Runner | None = context.meta.get(_KEY)
    if runner is None:
        # Modules stay to the end, when Python looks through all that is left for cycles. To leave
        # them out saves a quarter of a short command's processor time.
        gc.freeze()
        runner = context.meta[_KEY] = asyncio.Runner()
        # Not later: when the interpreter ends, the loop can no longer wait for its threads.
        context.call_on_close(runner.close)
    return runner.run(work)
