"""Runtime that all parts of a client share: clock, randomness, settings, background work.

All tasks, callbacks and timers of the SDK are started here, and each has an owner. When one dies of
an exception, whatever it is, its owner is called with an error, and answers those that wait: their
futures fail, a transaction is doomed, a link is closed. If the owner fails as well, or if nothing
narrower can answer, the whole client fails. Otherwise the error would end in the log of the event
loop alone, and what depended on the task would be lost silently (invariant 11).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from magnetar.config import ClientConfig
from magnetar.errors import ClientClosed, UsedAfterFork, WrongEventLoop, failure_of
from magnetar.link.deadlines import Deadlines
from magnetar_core.backoff import Backoff
from magnetar_core.clock import Clock
from magnetar_core.errors import MagnetarError
from magnetar_core.membership.cluster_identity import ClusterIdentity
from magnetar_core.process.forks import belongs_here
from magnetar_core.transport.transport import Transport

if TYPE_CHECKING:
    from magnetar.link.traces import ClientTraces

log = logging.getLogger("magnetar")

ID_BITS = 63
_numbers = itertools.count(1)

T = TypeVar("T")
FutureT = TypeVar("FutureT", bound="asyncio.Future[Any]")
# Called with the error of what has died.
WorkOwner: TypeAlias = Callable[[MagnetarError], object]


def awaited(error: MagnetarError) -> None:
    """Own a task that a caller awaits: the caller gets its error."""


def unobserved(future: FutureT) -> FutureT:
    """Let a future fail that may not be awaited: the error is told elsewhere, too."""
    future.add_done_callback(_retrieve)
    return future


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class Scheduled:
    """A call at the end of the event loop's turn."""

    __slots__ = ("args", "callback", "work_owner")

    def __init__(self, owner: WorkOwner, callback: Callable[..., object], args: Any) -> None:
        self.work_owner = owner
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Do not call it."""
        self.callback = None
        self.args = ()


class Runtime:
    """The world of a client. Nothing else in the SDK uses time or randomness."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        config: ClientConfig,
        traces: ClientTraces | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        # Returns the milliseconds of a clock that does not jump.
        self.now_ms = clock.monotonic_ms
        self.random = random
        self.config = config
        # Makes spans; None: there are none.
        self.traces = traces
        # A client belongs to the loop in which it was made. To ask for the running one costs a
        # system call in CPython 3.11.
        self.loop = asyncio.get_running_loop()
        # Where that loop runs, for a quick look.
        self._thread_id = threading.get_ident()
        self.is_forked = False
        belongs_here(self)
        self.deadlines = Deadlines(self.loop, self.guarded)
        # Learned from the first server; a server of another cluster is then refused.
        self.cluster = ClusterIdentity()
        self.has_reached_a_server = False
        # Version of the list of members that is known, and how many coordinators it has.
        self.members_version = 0
        self.coordinator_count = 0
        # The highest stamp of a commit that this client knows: its own commits get higher ones.
        self.seen_stamp = 0
        # Blocks of transactions that have not ended: see magnetar.transactions.transaction_block.
        self.open_blocks: set[object] = set()
        # In order of start: cancelled in that order too.
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        # Calls at the end of this turn of the event loop, and those that come last.
        self._soon: deque[Scheduled] = deque()
        self._last: deque[Scheduled] = deque()
        self._turn_ends = False
        self._task_count = 0
        # The client refuses further calls.
        self.is_closing = False
        # All background work has ended.
        self._closing = asyncio.Event()
        # Requests that pause: they are told when the client closes.
        self.pausing: dict[object, WorkOwner] = {}
        # Why the client has failed as a whole; None: it has not. The client says what it is then
        # that all its parts do.
        self.failure: MagnetarError | None = None
        self.on_failed: WorkOwner = awaited

    def new_id(self) -> int:
        """Return a random id for a producer or consumer; never 0."""
        return self.random.getrandbits(ID_BITS) or 1

    def next_number(self) -> int:
        """Return a number that is unique in this process.

        Producers and consumers find a transaction by it, and may be given that of another client.
        """
        return next(_numbers)

    def backoff(self) -> Backoff:
        """Return the pauses between repeats, as configured."""
        config = self.config
        return Backoff(config.backoff_ms_min, config.backoff_ms_max, self.random)

    @property
    def has_latest_members(self) -> bool:
        """Whether no server has told of a later list of members than the one that is known."""
        return self.cluster.membership_version <= self.members_version

    @property
    def has_one_coordinator(self) -> bool:
        """Whether all commits are decided by the same coordinator, which knows all stamps."""
        return self.coordinator_count == 1 and self.has_latest_members

    def saw(self, stamp: int) -> None:
        """Note the stamp of a commit that this client learns of; 0: it has none."""
        if stamp > self.seen_stamp:
            self.seen_stamp = stamp

    def require_loop(self) -> None:
        """Check that the caller is on the client's event loop.

        Raises:
            WrongEventLoop: it is in another event loop, or in none.
            UsedAfterFork: it is in a forked child.
        """
        if threading.get_ident() != self._thread_id or not self.loop.is_running():
            self._find_loop()

    def _find_loop(self) -> None:
        if self.is_forked:
            raise UsedAfterFork(
                "this client was made before a fork and does not work in the child process; "
                "connect again here"
            )
        try:
            found: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            found = None
        if found is not self.loop:
            where = "there is no event loop here" if found is None else "here is another one"
            ended = ", which has ended" if self.loop.is_closed() else ""
            raise WrongEventLoop(
                f"a client belongs to the event loop in which it was made{ended}, and {where}:"
                " connect in each event loop, or use magnetar.blocking"
            )
        self._thread_id = threading.get_ident()

    def forked(self) -> None:
        """Note that this is the copy of a forked child."""
        self.is_forked = True
        self._thread_id = 0

    def spawn(
        self, work: Callable[[], Coroutine[Any, Any, T]], name: str, owner: WorkOwner
    ) -> asyncio.Task[T]:
        """Run work in the background; it is cancelled when the client closes.

        If the client is closed already, the work never begins, and the task ends with
        ClientClosed.

        Args:
            work: makes the coroutine, at the task's first step. So where the task is cancelled
                before it, or its event loop ends, no coroutine is left that never ran.
            name: what it does, for people.
            owner: called with the error if the task fails; `awaited` if a caller awaits it.
        """
        if self._closing.is_set():
            # It would never be cancelled.
            work = _refuse
        task = self.loop.create_task(self._run(work, name, owner), name=name)
        self._task_count += 1
        number = self._task_count
        self._tasks[number] = task

        def done(_: asyncio.Task[T]) -> None:
            self._tasks.pop(number, None)

        task.add_done_callback(done)
        return unobserved(task)

    async def _run(
        self, work: Callable[[], Coroutine[Any, Any, T]], name: str, owner: WorkOwner
    ) -> T:
        try:
            return await work()
        except (asyncio.CancelledError, GeneratorExit):
            # GeneratorExit: the event loop has ended, and no caller waits.
            raise
        except BaseException as error:
            failure = self._died(owner, error, name)
            if failure is error:
                raise
            raise failure from error

    def call_soon(self, owner: WorkOwner, callback: Callable[..., object], *args: Any) -> Scheduled:
        """Call a function at the end of this turn of the event loop, with all others of the turn.

        So the commands of all transactions of a turn leave in the same frames.
        """
        return self._call_at_end(self._soon, owner, callback, args)

    def call_last(self, owner: WorkOwner, callback: Callable[..., object]) -> None:
        """Call a function at the end of this turn, behind what call_soon() has asked for."""
        self._call_at_end(self._last, owner, callback, ())

    def _call_at_end(
        self,
        calls: deque[Scheduled],
        owner: WorkOwner,
        callback: Callable[..., object],
        args: tuple[Any, ...],
    ) -> Scheduled:
        if self.traces is not None:
            # Spans belong where the call was asked for.
            callback = partial(copy_context().run, callback)
        scheduled = Scheduled(owner, callback, args)
        calls.append(scheduled)
        if not self._turn_ends:
            self._turn_ends = True
            self.loop.call_soon(self._end_turn)
        return scheduled

    def _end_turn(self) -> None:
        try:
            self._call_all(self._soon)
            self._call_all(self._last)
        finally:
            self._turn_ends = bool(self._soon or self._last)
            if self._turn_ends:
                self.loop.call_soon(self._end_turn)

    def _call_all(self, calls: deque[Scheduled]) -> None:
        for _ in range(len(calls)):
            one = calls.popleft()
            if one.callback is not None:
                self.guarded(one.work_owner, one.callback, *one.args)

    def call_later(
        self, owner: WorkOwner, delay_ms: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call a function after a delay in milliseconds."""
        return self.loop.call_later(delay_ms / 1000, self.guarded, owner, callback, *args)

    def when_done(
        self, owner: WorkOwner, task: asyncio.Task[T], callback: Callable[[asyncio.Task[T]], object]
    ) -> None:
        """Call a function with a task when that has ended."""
        task.add_done_callback(partial(self.guarded, owner, callback))

    def owned(self, owner: WorkOwner, callback: Callable[..., object]) -> Callable[..., None]:
        """Return a function to give to others: it does the same, and has an owner."""
        return partial(self.guarded, owner, callback)

    def guarded(self, owner: WorkOwner, callback: Callable[..., object], *args: Any) -> None:
        """Call a function. If that fails, its owner is called with the error."""
        try:
            callback(*args)
        except BaseException as error:
            self._died(owner, error, getattr(callback, "__qualname__", repr(callback)))

    def tell(self, on_result: Callable[[Any], object], result: object) -> None:
        """Call a function with a result or an error; if that fails, with the error of that."""
        try:
            on_result(result)
        except BaseException as error:
            self._died(on_result, error, "to handle an answer")

    def fail_each(self, owners: Iterable[WorkOwner], error: MagnetarError) -> None:
        """Call each with an error, also if others fail."""
        for owner in owners:
            try:
                owner(error)
            except Exception as second:
                self._report("a part of the client could not fail", second)

    def fail(self, error: MagnetarError) -> None:
        """Fail the client as a whole: all waiting calls and all later calls raise the error.

        ClientClosed does not count as a failure: a part of the client began to work while the
        client closed.
        """
        if self.failure is None and not isinstance(error, ClientClosed):
            self.failure = error
            log.critical("the client failed: %s", error)
            self.fail_each([self.on_failed], error)

    def _died(self, owner: WorkOwner, error: BaseException, what: str) -> BaseException:
        """Have an owner answer for what an exception has ended; return what to raise."""
        failure = failure_of(error, what)
        # Of those that applications know, the owner alone is told.
        if failure is not error:
            self._report(f"{what} failed", error)
        try:
            owner(failure)
        except Exception as second:
            self._report(f"the owner of what has failed ({what}) failed, too", second)
            self.fail(failure)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            # The application ends.
            raise error
        return failure

    def _report(self, message: str, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": message, "exception": error})

    async def pause(self, duration_ms: float) -> None:
        """Wait for some time.

        Raises:
            ClientClosed: the client closes; at once.
        """
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._closing.wait()
        except TimeoutError:
            return
        raise ClientClosed("the client is closed")

    async def result_of(self, task: asyncio.Task[T]) -> T:
        """Wait for a background task, which goes on if the caller is cancelled.

        Raises:
            ClientClosed: the task was cancelled, since the client closes. asyncio.CancelledError
                would look as if the caller had been cancelled.
        """
        if not task.done():
            await asyncio.wait((task,))
        if task.cancelled():
            raise ClientClosed("the client was closed")
        return task.result()

    def close(self) -> list[asyncio.Task[Any]]:
        """Cancel all background tasks, and refuse new ones. Returns those that have not ended."""
        self._begin_closing()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks.values() if task is not current]
        for task in tasks:
            task.cancel()
        self.deadlines.close()
        return tasks

    def _begin_closing(self) -> None:
        self._closing.set()
        pausing, self.pausing = self.pausing, {}
        self.fail_each(pausing.values(), ClientClosed("the client is closed"))

    async def cancel_all(self) -> None:
        """Do the same as close, and wait until all of them have ended.

        The links are closed: calls that wait for an answer, or pause before they ask again, are
        told of that first, and say whether their request may have taken effect.
        """
        self._begin_closing()
        await asyncio.sleep(0)
        await asyncio.gather(*self.close(), return_exceptions=True)
        self.deadlines.close()


async def _refuse() -> NoReturn:
    raise ClientClosed("the client is closed")
