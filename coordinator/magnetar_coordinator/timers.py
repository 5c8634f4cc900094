"""Periodic callbacks, by the event loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Periodic:
    """Calls back at an interval until it is stopped.

    Args:
        on_failure: called with the callback's exception; the callback then no longer runs.
    """

    def __init__(
        self,
        interval_ms: int,
        callback: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._interval_seconds = interval_ms / 1_000
        self._callback = callback
        self._on_failure = on_failure
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin; the first call comes after an interval."""
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(self._interval_seconds, self._run)

    def stop(self) -> None:
        """Stop calling back."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        if self._stopped:
            return
        try:
            self._callback()
        except Exception as error:
            self._on_failure(error)
            return
        if not self._stopped:
            self.start()
