"""`--watch`: an output that is repeated until Ctrl-C.

On a terminal, frames replace each other, on the screen that editors use: the lines before the
command are there again at its end. Without a terminal, or on one that cannot move its cursor, they
come one after the other.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

from magnetar_cli import output
from magnetar_cli.event_loop import status_of_signal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PERIOD_S = 1.0


def watched(show: Callable[[], None]) -> None:
    """Repeat an output until Ctrl-C.

    A first output that fails ends the command. Later ones keep the frame before them, with the
    error: servers may come back.
    """
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            _replace(show, console)
        else:
            _repeat(show)
    except KeyboardInterrupt:
        return


def _repeat(show: Callable[[], None]) -> None:
    pause = threading.Event()
    while True:
        show()
        print(flush=True)
        pause.wait(PERIOD_S)


def _replace(show: Callable[[], None], console: Console) -> None:
    from rich.live import Live

    from magnetar_core.errors import MagnetarError
    from magnetar_core.transport.transport import LinkClosed

    pause = threading.Event()
    text = _captured(show, console)
    error = ""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # By default they end the process at once, and leave the terminal as it is.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_frame(text, error, console), refresh=True)
                pause.wait(PERIOD_S)
                try:
                    text, error = _captured(show, console), ""
                except (MagnetarError, LinkClosed) as failure:
                    error = f"{type(failure).__name__}: {failure}"
    finally:
        # The terminal shows its earlier lines again, and the last frame stays below them.
        sys.stdout.write(text)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(status_of_signal(number))


def _captured(show: Callable[[], None], console: Console) -> str:
    """Return an output with its warnings, as wide as the terminal."""
    captured = io.StringIO()
    with output.in_frame(console.width), redirect_stdout(captured), redirect_stderr(captured):
        show()
    return captured.getvalue()


def _frame(text: str, error: str, console: Console) -> RenderableType:
    """Return the lines of an output that fit on the screen, under a line about the frame."""
    from rich.console import Group
    from rich.text import Text

    now = datetime.now(UTC).astimezone()
    head = Text(f"{now:%H:%M:%S}, each second; Ctrl-C ends", style="dim")
    lines = list(Text.from_ansi(text).wrap(console, console.width))
    if error:
        head = Text(f"{now:%H:%M:%S}, no answer, so this is older: {error}", style="bold")
    room = console.height - len(head.wrap(console, console.width))
    if len(lines) > room:
        hidden = len(lines) - room + 1
        lines[room - 1 :] = [Text(f"... {hidden:,} more lines", style="bold")]
    return Group(head, *lines)
