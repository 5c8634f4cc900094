"""The thread on which the asyncio client runs, and how others wait for it.

No thread keeps a process alive: all of them are daemons. When the main thread and all other threads
of the program that are not daemons have ended, Python calls what was registered with atexit;
daemons still run then. So that is the moment to flush and to close. Threading's own hook comes
before other threads have ended, which may use the client, and finalisers come when daemons no
longer run.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import sys
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
)
from contextlib import suppress
from typing import Any, TypeVar

from magnetar import process_end
from magnetar.errors import ClientClosed, UsedAfterFork, WrongEventLoop
from magnetar.open_client import OpenClient
from magnetar_core.clock import SystemClock
from magnetar_core.errors import OutcomeUnknown
from magnetar_core.process.forks import belongs_here

T = TypeVar("T")

# How long the process may take at its end to flush and close the clients that are still open.
EXIT_WITHIN_S = 5.0
# What a loop may take beyond that to notice that its time is up.
EXIT_GRACE_S = 1.0
# How long calls may take to return what the close of the client has answered.
END_WITHIN_S = 1.0

TITLE = "magnetar.blocking.Client"

_END = object()


class LoopThread:
    """An event loop on a thread of its own, for the objects of a client that a program holds.

    When the program no longer holds any of them, the client is closed in the background.
    """

    def __init__(self) -> None:
        self._running = RunningLoop()

    def __del__(self) -> None:
        self._running.drop(self)

    def serve(self, opened: OpenClient) -> None:
        """Close this client when the program drops it, or ends."""
        opened.hand_over()
        self._running.opened = opened

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it. An interrupt cancels it.

        Raises:
            UsedAfterFork: the loop's thread lives in the parent process only.
            ClientClosed: the client is closed.
            OutcomeUnknown: the client was closed before the work had ended.
            WrongEventLoop: the caller is on the loop, and would wait for itself.
        """
        return self._running.wait(work)

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.wait(work())

    def post(self, function: Callable[[], object]) -> None:
        """Have something called on the loop, without waiting; from a signal handler too."""
        self._running.loop.call_soon_threadsafe(function)

    def iterate(self, source: AsyncIterable[T]) -> Iterator[T]:
        """Iterate over something that lives on the loop."""
        pieces = aiter(source)
        try:
            while (piece := self.wait(_next(pieces))) is not _END:
                yield piece  # type: ignore[misc]
        finally:
            # A caller that stops in the middle ends the work behind it. This may be the collector
            # of garbage, on any thread: it does not wait for the end.
            if isinstance(pieces, AsyncGenerator):
                self._running.begin(_aclose(pieces))

    def close_after(self, work: Coroutine[Any, Any, None]) -> None:
        """End the loop after some last work. Does nothing in a forked child, or a second time."""
        try:
            self.check(work.close)
        except (UsedAfterFork, ClientClosed):
            return
        if self._running.is_own_thread:
            # A finaliser that the collector of garbage calls there.
            work.close()
            self._running.drop(self)
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
        self._running.check(otherwise)

    def close(self) -> None:
        """Stop the event loop and its thread."""
        self._running.stop()


class RunningLoop:
    """The loop and its thread, which refer to nothing that the program holds.

    Attributes:
        opened: what runs on the loop; None: the client has not connected yet.
    """

    def __init__(self) -> None:
        self.opened: OpenClient | None = None
        self._is_forked = False
        self._closed = False
        # What is given to the loop comes before its end. A signal handler may close in between, on
        # the thread that has this lock already.
        self._lock = threading.RLock()
        self.loop = asyncio.new_event_loop()
        with suppress(AttributeError):
            # Tests of programs replace the clocks of all modules (freezegun); timers would never
            # fire. uvloop has a clock of its own.
            clock = SystemClock()
            self.loop.time = lambda: clock.monotonic_ms() / 1000  # type: ignore[method-assign]
        belongs_here(self)
        self._thread = threading.Thread(target=self._run, name="magnetar", daemon=True)
        _open.add(self)
        _watch_workers()
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.get_ident() == self._thread.ident

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it: see LoopThread.wait."""
        # Before the lock, which another thread may have held at the moment of the fork.
        self.check(work.close)
        if self.is_own_thread:
            work.close()
            raise WrongEventLoop(
                "this call would wait for the client's own thread, on which it is made: use another"
                " thread"
            )
        with self._lock:
            self.check(work.close)
            try:
                future = asyncio.run_coroutine_threadsafe(work, self.loop)
            except RuntimeError:
                # A signal handler has closed it.
                work.close()
                self.check()
                raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._closed:
                raise OutcomeUnknown(
                    "the client was closed before this call had ended; it may have happened"
                ) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something on the loop, if it still runs, without waiting for it."""
        try:
            self.check(work.close)
        except (UsedAfterFork, ClientClosed):
            return
        try:
            asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()

    def check(self, otherwise: Callable[[], None] = lambda: None) -> None:
        """Check that the client can be used: see LoopThread.check."""
        if self._is_forked:
            otherwise()
            raise UsedAfterFork(
                "this client was made before a fork and does not work in the child process; "
                "connect again here"
            )
        if self._closed or sys.is_finalizing():
            otherwise()
            raise ClientClosed("the client is closed")

    def forked(self) -> None:
        """Note that this is the copy of a forked child."""
        self._is_forked = True
        _open.discard(self)

    def drop(self, client: object) -> None:
        """Close the client in the background, without waiting: the program has dropped it."""
        if self._closed or self._is_forked or sys.is_finalizing():
            return
        if self.opened is not None:
            process_end.warn_of(client, TITLE)
        self._closed = True
        # It cannot be closed: no other code may do that by now.
        self.loop.call_soon_threadsafe(self._close_and_stop)

    def _close_and_stop(self) -> None:
        async def work() -> None:
            try:
                if self.opened is not None:
                    await self.opened.close()
            finally:
                self.loop.stop()

        self._closing = self.loop.create_task(work())

    def begin_exit(self) -> concurrent.futures.Future[dict[str, int]] | None:
        """Flush and close, since the process ends. Returns what will be lost; None: nothing is."""
        if self.opened is None or self._is_forked:
            return None
        process_end.warn_of(self, TITLE)
        try:
            return asyncio.run_coroutine_threadsafe(self.opened.finish(EXIT_WITHIN_S), self.loop)
        except RuntimeError:
            return None  # Closed just now.

    def end_exit(self, future: concurrent.futures.Future[dict[str, int]], within_s: float) -> None:
        """Wait for the end that begin_exit() has begun, and say what is lost."""
        assert self.opened is not None
        try:
            lost = future.result(within_s)
        except (TimeoutError, KeyboardInterrupt, concurrent.futures.CancelledError):
            lost = self.opened.producers.unstored()
        process_end.forget(self.opened)
        process_end.tell_lost(lost)
        self.stop(EXIT_GRACE_S)

    def stop(self, within_s: float | None = None) -> None:
        """Stop the event loop and its thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(within_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_end_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            _open.discard(self)


# Loop threads that run.
_open: set[RunningLoop] = set()
# The processes among this one and its parents, workers of multiprocessing, whose end is watched.
_watched: set[int] = set()


@atexit.register
def _end_of_process() -> None:
    """Flush and close all clients, side by side."""
    clock = SystemClock()
    ending = [(one, one.begin_exit()) for one in list(_open)]
    until_ms = clock.monotonic_ms() + (EXIT_WITHIN_S + EXIT_GRACE_S) * 1000
    for one, future in ending:
        if future is not None:
            one.end_exit(future, max(0.0, until_ms - clock.monotonic_ms()) / 1000)


def _watch_workers() -> None:
    """Have the same done at the end of a worker of multiprocessing, which calls no atexit."""
    process, util = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.util"))
    if process and util and process.parent_process() and os.getpid() not in _watched:
        _watched.add(os.getpid())
        util.Finalize(None, _end_of_worker, exitpriority=0)


def _end_of_worker() -> None:
    # multiprocessing waits for these behind its finalisers. They may use the client.
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    _end_of_process()


async def _end_all() -> None:
    """End the tasks that other threads wait for; the close of the client has answered all of them.

    Tasks that do not end are cancelled, as asyncio.Runner does at its end.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, tasks = await asyncio.wait(tasks, timeout=END_WITHIN_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _next(pieces: AsyncIterator[T]) -> T | object:
    return await anext(pieces, _END)


async def _aclose(pieces: AsyncGenerator[Any, None]) -> None:
    await pieces.aclose()
