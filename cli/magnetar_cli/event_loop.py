"""The one event loop of a command, on which all of its conversations with servers run.

asyncio.run() makes a loop for each call and closes it. gRPC tells whatever loop runs of all events
of the process: one that comes late, for a loop that is closed, ends in a traceback on the terminal.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

import click

Result = TypeVar("Result")

_KEY = "magnetar_cli.event_loop"
# Ctrl-C, `kill`, and the end of the terminal.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def status_of_signal(number: int) -> int:
    """Return the exit status of a command that a signal has ended, as shells tell it."""
    return 128 + number


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something to its end, on the same event loop as everything before it in this command.

    A signal cancels the work, which may take a moment to end in order. The second signal ends the
    process at once.

    Raises:
        KeyboardInterrupt: Ctrl-C cancelled the work.
        SystemExit: another signal did.
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
    with _Interruption() as interruption:
        try:
            return runner.run(interruption.may_cancel(work))
        except asyncio.CancelledError:
            if interruption.number is None:
                raise
    if interruption.number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(status_of_signal(interruption.number))


class _Interruption:
    """Cancels work when a signal comes.

    Attributes:
        number: of the signal; None: none has come.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    async def may_cancel(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work, and be what a signal cancels."""
        self._task = asyncio.current_task()
        if self.number is not None:
            work.close()
            raise asyncio.CancelledError
        return await work

    def __enter__(self) -> _Interruption:
        for number in INTERRUPTS:
            # Ignored: in the background, or under nohup. None: the handler of another language.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.number is not None:
            os._exit(status_of_signal(number))
        self.number = number
        if number == signal.SIGINT and sys.stderr.isatty():
            # The terminal has shown ^C without an end of the line.
            print(file=sys.stderr)
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
