"""Code that is written once, for blocking objects and for those of asyncio."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from magnetar_core.invariants import BrokenInvariant

log = logging.getLogger("magnetar")

T = TypeVar("T")

# Tasks that go on although their callers were cancelled; the event loop itself holds them weakly.
_going_on: set[asyncio.Task[Any]] = set()


async def result_of(value: T | Awaitable[T]) -> T:
    """Return the result of a call, which may have to be awaited."""
    if inspect.isawaitable(value):
        return await value
    return value


def here(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, since all that it calls is blocking."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise BrokenInvariant("an asyncio object was given where a blocking one belongs")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which goes on in the background if this task is cancelled."""
    task = asyncio.create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("the rest of a cancelled call has failed: %r", error)
