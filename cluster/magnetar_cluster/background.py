"""Background tasks: they are not awaited, and their failures are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class CallCancelled(Exception):
    """The awaited call was cancelled, but not its caller."""


async def outcome_of(call: Awaitable[Answer]) -> Answer:
    """Await a call. Its own cancellation is a failure like others, and ends no task here.

    gRPC cancels the calls of a channel that is closed, for example.

    Raises:
        CallCancelled: the call was cancelled.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CallCancelled("the call was cancelled") from error


class Background:
    """Starts tasks, and ends those that are left.

    A task that fails is a bug: the event loop's exception handler is told.
    """

    def __init__(self) -> None:
        # A dict, since a set's order would differ from run to run.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, except the one that calls."""
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.cancel()
        current = asyncio.current_task()
        await asyncio.gather(
            *(one for one in self._tasks if one is not current), return_exceptions=True
        )

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": "a task of the cluster failed", "exception": error, "task": task}
            )
