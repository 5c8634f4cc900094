"""Event loop of test servers: it waits for time and for other threads, without sockets."""

from __future__ import annotations

import threading
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from magnetar.testing.life_loop import LifeLoop

# How long the loop waits at most without looking again.
WAIT_S_MAX = 3_600.0


class PacedLoop(LifeLoop):
    """A loop that other threads may give work to.

    Args:
        now_s: the time, in seconds; see shifted_time.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self._now = now_s()
        self._inbox: deque[events.Handle] = deque()
        self._woken = threading.Event()

    def time(self) -> float:
        """Return the time, in seconds."""
        return self._now_s()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """Call a function soon, from any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = events.Handle(callback, args, self, context)
        self._inbox.append(handle)
        self._woken.set()
        return handle

    def has_work(self) -> bool:
        """Return whether anything is ready, or due."""
        due = self.next_due()
        return bool(self._ready or self._inbox) or (due is not None and due <= self.time())

    def _run_once(self) -> None:
        self._take_inbox()
        if not self._ready and not self._stopping:
            self._wait()
        self._now = self._now_s()
        self._steps_at_one_instant = 0
        super()._run_once()

    def _advance(self) -> None:
        """Time passes by itself."""

    def _wait(self) -> None:
        due = self.next_due()
        wait_s = WAIT_S_MAX if due is None else min(due - self._now_s(), WAIT_S_MAX)
        if wait_s > 0:
            self._woken.wait(wait_s)
        # In this order: work that comes in between is taken now, or wakes the next wait.
        self._woken.clear()
        self._take_inbox()

    def _take_inbox(self) -> None:
        inbox = self._inbox
        for _ in range(len(inbox)):
            self._ready.append(inbox.popleft())
