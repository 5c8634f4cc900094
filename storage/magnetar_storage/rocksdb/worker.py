"""Thread of a store for work that waits for the disk, such as syncs.

`run_in_executor` makes two futures and a lock for each call, at six times the cost of a call here.
That is a quarter of what a small group commit costs the event loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

# What is to be called, and who waits for it. None: the thread ends.
_Calls: TypeAlias = SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]

NAME: Final = "store-sync"


class Worker:
    """Thread that makes calls one after another, while the event loop goes on.

    It ends after the calls that it was given: with close(), when nothing refers to the worker, or
    when the interpreter ends, which waits for it: RocksDB must not be stopped in the middle of a
    call.
    """

    def __init__(self) -> None:
        self._calls: _Calls = SimpleQueue()
        # Without `daemon`, an interpreter whose store is not closed would never end.
        thread = Thread(target=_work, args=(self._calls,), name=NAME, daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end, self._calls, thread)

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call on the thread, and return its result or raise its exception.

        A call goes on when its caller is cancelled.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, future))
        return await future

    def close(self) -> None:
        """Wait until all calls have ended, and end the thread. Repeating it is harmless."""
        self._end()


def _work(calls: _Calls) -> None:
    while _make_next(calls):
        pass


def _make_next(calls: _Calls) -> bool:
    """Make a call. Nothing refers to it afterwards: RocksDB is closed without references."""
    item = calls.get()
    if item is None:
        return False
    call, future = item
    result: Any = None
    failure: BaseException | None = None
    try:
        result = call()
    except BaseException as error:
        failure = error
    # The event loop may be closed: then no caller waits.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future, result, failure)
    return True


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


def _end(calls: _Calls, thread: Thread) -> None:
    calls.put(None)
    # The thread itself may be the one that drops the last reference.
    if thread is not current_thread():
        thread.join()
