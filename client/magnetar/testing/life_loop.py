"""Event loop whose callbacks and tasks belong to lives of processes, which can be killed or frozen.

No sockets and no files: what a server needs of them fails. How time passes is for subclasses to
say: the loop of `paced_loop` waits for it, the one of the simulation moves its clock.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import AsyncGeneratorType
from typing import Any

from magnetar.testing.lives import (
    CURRENT,
    Incarnation,
    Livelock,
    SimulationFailure,
    UnhandledException,
)

# Steps without any progress of time before the loop calls it a livelock.
STEPS_AT_ONE_INSTANT_MAX = 200_000


class _Timer(events.TimerHandle):
    """A timer that does not tell its loop of a cancellation; the loop passes over it."""

    __slots__ = ()

    # As every handle has it; the stubs leave it out.
    _context: Context

    def cancel(self) -> None:
        """Do not call it."""
        events.Handle.cancel(self)


class LifeLoop(asyncio.BaseEventLoop):
    """Runs what is ready, and what is due at the time that it has reached.

    Attributes:
        step_count: callbacks so far.
    """

    # Inherited; the stubs leave them out. What is ready are handles.
    _ready: deque[Any]
    _stopping: bool
    _thread_id: int | None

    def __init__(self) -> None:
        super().__init__()
        self.step_count = 0
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timer_count = 0
        self._steps_at_one_instant = 0
        self._failure: BaseException | None = None
        self._muted = False
        # Also the dead: kept, so that no corpse's `finally` runs by chance.
        self._incarnations: list[Incarnation] = []
        self._nobody = Incarnation("simulation")
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_exception)

    # Time.

    def time(self) -> float:
        """Return the time that the loop has reached, in seconds."""
        return self._now

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call a function after so many seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> events.TimerHandle:
        """Call a function at a time of this loop."""
        timer = _Timer(when, callback, args, self, context)
        self._timer_count += 1
        # The count makes timers of the same instant fire in the order in which they were set.
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def _run_once(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        ready = self._ready
        timers = self._timers
        if not ready:
            self._advance()
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                ready.append(timer)
        count = len(ready)
        self.step_count += count
        self._steps_at_one_instant += count
        if self._steps_at_one_instant > STEPS_AT_ONE_INSTANT_MAX:
            raise Livelock(f"{self._steps_at_one_instant} steps at {self._now:.6f} s")
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            incarnation = handle._context.get(CURRENT)
            if incarnation is None:
                handle._run()
            elif incarnation.held is not None:
                incarnation.held.append(handle)
            elif incarnation.alive:
                handle._run()

    def _advance(self) -> None:
        """Nothing is ready: let time reach the next timer."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """Return when the next timer will really fire; None: no timer is set."""
        timers = self._timers
        while timers:
            when, _, timer = timers[0]
            if timer._cancelled or not _is_alive(timer._context.get(CURRENT)):
                heapq.heappop(timers)
                continue
            return when
        return None

    # Tasks.

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        incarnation = context.get(CURRENT) if context is not None else CURRENT.get()
        (incarnation or self._nobody).add_task(task)
        return task

    def incarnate(self, name: str) -> Incarnation:
        """Begin a life of a node."""
        incarnation = Incarnation(name)
        self._incarnations.append(incarnation)
        return incarnation

    def spawn(
        self,
        incarnation: Incarnation,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
    ) -> asyncio.Task[Any]:
        """Run a coroutine on a node's behalf."""
        context = incarnation.context.copy()
        return self.create_task(coroutine, name=name, context=context)

    def kill(self, incarnation: Incarnation) -> None:
        """Stop whatever runs on this incarnation's behalf, where it stands."""
        incarnation.alive = False

    def freeze(self, incarnation: Incarnation) -> None:
        """Run nothing of this incarnation until thaw(), as after SIGSTOP."""
        if incarnation.held is None:
            incarnation.held = []

    def thaw(self, incarnation: Incarnation) -> None:
        """Run everything that fell due meanwhile, in its order."""
        held, incarnation.held = incarnation.held or [], None
        # Before what is ready already: that fell due later.
        self._ready.extendleft(reversed(held))

    def describe_tasks(self) -> str:
        """Return the place of every live unfinished task."""
        lines = []
        for incarnation in [self._nobody, *self._incarnations]:
            for task in incarnation.tasks:
                if incarnation.alive and not task.done():
                    place = _stack(task.get_coro())
                    lines.append(f"  {incarnation.name}: {task.get_name()} at {place}")
        return "\n".join(lines) or "  (no tasks)"

    def check(self) -> None:
        """Check that nothing has failed since the last step.

        Raises:
            SimulationFailure: what failed, and what check_tasks raises.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.check_tasks()

    def check_tasks(self) -> None:
        """Check the tasks of live processes.

        Raises:
            UnhandledException: one has failed, and its error was not looked at.
        """
        for incarnation in [self._nobody, *self._incarnations]:
            incarnation.prune(at_the_end=True)

    # Failures.

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        incarnation = CURRENT.get()
        if self._muted or (incarnation is not None and incarnation.failing):
            return
        error = context.get("exception")
        if isinstance(error, SimulationFailure):
            self.fail(error)
            return
        name = incarnation.name if incarnation is not None else "simulation"
        failure = UnhandledException(f"{name}: {context.get('message')}: {error!r}")
        failure.__cause__ = error
        self.fail(failure)

    def fail(self, failure: BaseException) -> None:
        """End the run with this failure, unless another came first."""
        if self._failure is None:
            self._failure = failure

    def bury(self) -> None:
        """Close everything that is unfinished, quietly. The loop cannot run after this."""
        self._muted = True
        self._close_tasks()
        self._ready.clear()
        self._timers.clear()
        self._incarnations.clear()
        self.close()

    def _close_tasks(self) -> None:
        """Close coroutines until none is left: one that is closed may start another."""
        events._set_running_loop(self)
        try:
            for incarnation in [self._nobody, *self._incarnations, self._nobody]:
                while incarnation.tasks:
                    _close(incarnation.tasks.pop())
        finally:
            events._set_running_loop(None)

    def _asyncgen_finalizer_hook(self, agen: AsyncGeneratorType[Any, Any]) -> None:
        """Fail the run: an async generator was dropped before its end without being closed.

        A loop of asyncio closes it some time later, by a task without an owner.
        """
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]
        if not self._muted:
            self.fail(
                UnhandledException(
                    f"{agen.__qualname__} was left half-read: close it where it is read"
                    " (contextlib.aclosing)"
                )
            )

    # What servers here do not have.

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        raise NotImplementedError

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """Call a function soon, from this loop's own thread: handlers of signals do so."""
        if self._thread_id != threading.get_ident():
            raise SimulationFailure("a thread called the event loop: there are none here")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Refuse work for a thread."""
        raise SimulationFailure("work was given to a thread: there are none here")


def _is_alive(incarnation: Incarnation | None) -> bool:
    return incarnation is None or incarnation.alive


def _close(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if task.done():
        task._log_traceback = False
        return
    try:
        task.get_coro().close()
    except BaseException:
        pass


def _stack(coroutine: Any) -> str:
    """The chain of functions in which a coroutine waits, innermost last."""
    places = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        file = frame.f_code.co_filename.rsplit("/", 1)[-1]
        places.append(f"{frame.f_code.co_qualname}({file}:{frame.f_lineno})")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return " > ".join(places) or "not started"
