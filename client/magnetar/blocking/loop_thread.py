"""The thread on which the asyncio client runs, and how others wait for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
)
from typing import Any, TypeVar

from magnetar.errors import ClientClosed, UsedAfterFork

T = TypeVar("T")

_END = object()


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        # What is given to the loop comes before its end. A signal handler may close in between, on
        # the thread that has this lock already.
        self._lock = threading.RLock()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_tell_of_exception)
        self._thread = threading.Thread(target=self._run, name="magnetar", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it. An interrupt cancels it.

        Raises:
            UsedAfterFork: the loop's thread lives in the parent process only.
            ClientClosed: the client is closed, or was closed before the work had ended.
        """
        # Before the lock, which another thread may have held at the moment of the fork.
        self.check(work.close)
        with self._lock:
            self.check(work.close)
            try:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:
                # A signal handler has closed it.
                work.close()
                self.check()
                raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            self.check()
            raise
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.wait(work())

    def post(self, function: Callable[[], object]) -> None:
        """Have something called on the loop, without waiting; from a signal handler too."""
        self._loop.call_soon_threadsafe(function)

    def iterate(self, source: AsyncIterable[T]) -> Iterator[T]:
        """Iterate over something that lives on the loop."""
        pieces = aiter(source)
        try:
            while (piece := self.wait(_next(pieces))) is not _END:
                yield piece  # type: ignore[misc]
        finally:
            # Who stops in the middle ends the work behind it; the loop's end has done so, too.
            if isinstance(pieces, AsyncGenerator) and not self._closed:
                self.wait(_aclose(pieces))

    def close_after(self, work: Coroutine[Any, Any, None]) -> None:
        """End the loop after some last work. Does nothing in a forked child, or a second time."""
        try:
            self.check(work.close)
        except (UsedAfterFork, ClientClosed):
            return
        try:
            self.wait(work)
        except ClientClosed:
            pass  # Another thread was faster.
        finally:
            self.close()

    def check(self, otherwise: Callable[[], None] = lambda: None) -> None:
        """Check that the client can be used.

        Args:
            otherwise: called before an error is raised.
        Raises:
            UsedAfterFork: the process has forked since the client was made.
            ClientClosed: the client is closed.
        """
        if os.getpid() != self._pid:
            otherwise()
            raise UsedAfterFork(
                "this client was made before a fork and does not work in the child process; "
                "connect again here"
            )
        if self._closed:
            otherwise()
            raise ClientClosed("the client is closed")

    def close(self) -> None:
        """Stop the event loop and its thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_end_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _tell_of_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what a callback raised, but not that an event came too late for another client.

    gRPC tells each loop of the process of all events, and hands them on to the loops they belong
    to. The loop of a client that was closed meanwhile takes none, and nobody waits for them.
    """
    is_of_grpc = "PollerCompletionQueue._handle_events" in str(context.get("message"))
    if not (is_of_grpc and isinstance(context.get("exception"), RuntimeError)):
        loop.default_exception_handler(context)


async def _end_all() -> None:
    """Cancel what other threads still wait for, as asyncio.Runner does at its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _next(pieces: AsyncIterator[T]) -> T | object:
    return await anext(pieces, _END)


async def _aclose(pieces: AsyncGenerator[Any, None]) -> None:
    await pieces.aclose()
