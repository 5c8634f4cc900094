"""Shows how far something long is: a bar on a terminal, elsewhere a line for each portion."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class JobProgress:
    """Shows progress on standard error, so that the output of the job stays clean.

    Args:
        what: what is done with them, as "restored".
        things: what is counted, as "offsets".
    """

    def __init__(self, what: str, things: str) -> None:
        self._what = what
        self._things = things
        self._last_line = ""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> JobProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int, more: str = "") -> None:
        """Show the progress, if it differs from what is shown.

        Args:
            done: how many things are done.
            total: how many there are.
            more: further text.
        """
        more = f", {more}" if more else ""
        if self._bar is not None:
            self._bar.update(
                self._task, completed=done, total=total, description=f"{self._what}{more}"
            )
            return
        share = 100 * done // total if total else 100
        line = f"{self._what} {done:,} of {total:,} {self._things} ({share} %){more}"
        if line != self._last_line:
            self._last_line = line
            print(line, file=sys.stderr, flush=True)


class RowsRead:
    """Shows on a terminal how many rows of a store were read. Their total is not known.

    Args:
        shown: False: nothing is shown anywhere.
    """

    def __init__(self, *, shown: bool) -> None:
        self._status: Any = None
        self._is_shown = shown and sys.stderr.isatty()

    def __enter__(self) -> RowsRead:
        if self._is_shown:
            from rich.console import Console

            self._status = Console(stderr=True).status("reading")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, what: str, row_count: int) -> None:
        """Show the progress."""
        if self._status is not None:
            self._status.update(f"{what}: {row_count:,} rows")
