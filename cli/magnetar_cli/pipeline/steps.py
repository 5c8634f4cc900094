"""Shows the steps of a job on standard error, line by line; on a terminal also Spark's tasks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

PERIOD_S = 0.5


class Steps:
    """Shows consecutive steps.

    Args:
        tasks: how many tasks of the present step are done, and how many there are.
    """

    def __init__(self, tasks: Callable[[], tuple[int, int]]) -> None:
        self._tasks = tasks
        self._text = ""
        self._status: Any = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Steps:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status("starting")
            self._status.start()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._status is not None:
            self._status.stop()

    def begin(self, text: str) -> None:
        """Begin a step, and show it."""
        self._text = text
        if self._status is None:
            print(text, file=sys.stderr, flush=True)

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                done, total = self._tasks()
            except Exception:
                return  # The job has failed, and says why.
            more = f": {done} of {total} tasks" if total > 1 else ""
            self._status.update(self._text + more)
