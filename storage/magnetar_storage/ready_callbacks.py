"""Callbacks that may run, one after the other, in the order in which they were registered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class ReadyCallbacks:
    """Runs callbacks. A callback that becomes ready while others run is run after them."""

    def __init__(self) -> None:
        self._running: list[Callable[[], None]] | None = None

    def call(self, *callbacks: Callable[[], None]) -> None:
        """Run callbacks that are ready already: at once, or after those that run."""
        if self._running is not None:
            self._running += callbacks
        else:
            self.run(list(callbacks))

    def run(self, callbacks: list[Callable[[], None]]) -> None:
        """Run callbacks that have become ready. The list may grow meanwhile."""
        self._running = callbacks
        try:
            for callback in callbacks:
                guard(callback)
        finally:
            self._running = None


def guard(callback: Callable[..., None], *arguments: Any) -> None:
    """Run a callback; what it raises goes to the event loop's exception handler, as a bug."""
    try:
        callback(*arguments)
    except Exception as error:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler(
            {"message": "a callback of the group commit raised", "exception": error}
        )
