"""Threads for functions of the program: callbacks, and functions that transform messages.

asyncio.to_thread() uses threads for which the interpreter waits at its end, for as long as a
callback takes, and which take no further work when a client is closed at that moment. These keep no
process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from magnetar_core.process.forks import belongs_here
from magnetar_core.transport.waiters import settle

P = ParamSpec("P")
T = TypeVar("T")

# A worker without work for so long ends.
IDLE_S = 10.0


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function on another thread, and wait for what it returns or raises.

    Raises:
        RuntimeError: it raised what ends threads or event loops, such as SystemExit.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    run = partial(contextvars.copy_context().run, function, *args, **kwargs)

    def work() -> None:
        result: T | Exception
        try:
            result = run()
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                result = error
            else:
                result = RuntimeError(f"a function on a thread of its own raised {error!r}")
                result.__cause__ = error
        try:
            loop.call_soon_threadsafe(settle, done, result)
        except RuntimeError:
            pass  # The loop is closed: no task waits.

    _workers.take().work.put(work)
    return await done


class _Workers:
    """Workers without work."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []
        belongs_here(self)

    def take(self) -> _Worker:
        try:
            return self.idle.pop()
        except IndexError:
            return _Worker()

    def forked(self) -> None:
        """Forget the threads that live in the parent alone."""
        self.idle = []


class _Worker:
    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="magnetar works", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                work = self.work.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    _workers.idle.remove(self)
                except ValueError:
                    continue  # Another thread has just taken it.
                return
            work()
            _workers.idle.append(self)


_workers = _Workers()
