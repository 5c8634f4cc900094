"""Lives of servers: what runs on behalf of a process, and how all of it ends at once.

Code runs on behalf of an incarnation of a node (one life of one process), which a context variable
names. After that incarnation's death none of its callbacks or tasks takes another step, exactly as
after kill -9. The loops of `life_loop` see to that.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from typing import Any


class SimulationFailure(Exception):
    """The run found something wrong."""


class Livelock(SimulationFailure):
    """Steps without end at one instant."""


class UnhandledException(SimulationFailure):
    """A task or callback failed, and its error was not looked at."""


class Incarnation:
    """One life of one node.

    Attributes:
        context: what everything that runs on this life's behalf runs in.
        tasks: its tasks, so that a deadlock can be explained and a corpse be buried.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        # A node that reported a fatal error lives on for a moment; its tasks may then fail freely.
        self.failing = False
        # Callbacks that fell due while the process was frozen, in order; None: it runs.
        self.held: list[Any] | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        # Tasks that prune() has found failed once already.
        self._suspects: set[asyncio.Task[Any]] = set()
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self._prune_at = 64

    def add_task(self, task: asyncio.Task[Any]) -> None:
        """Note a task of this life."""
        self.tasks.append(task)
        if len(self.tasks) >= self._prune_at:
            self.prune()

    def prune(self, *, at_the_end: bool = False) -> None:
        """Forget finished tasks; a failed task whose error was not looked at fails the run.

        A task that awaits another one looks in its own next step. Until the end, a failure
        therefore counts when it is met for the second time, and not while the process is frozen.

        Raises:
            UnhandledException: such a task was found, and this incarnation was not dying of it.
        """
        failed = None
        unfinished = []
        suspects = set()
        for task in self.tasks:
            if not task.done():
                unfinished.append(task)
            elif task._log_traceback:
                if at_the_end or (task in self._suspects and self.held is None):
                    task._log_traceback = False
                    failed = failed or task
                else:
                    unfinished.append(task)
                    suspects.add(task)
        self.tasks, self._suspects = unfinished, suspects
        self._prune_at = 2 * len(unfinished) + 64
        if failed is not None and self.alive and not self.failing:
            error = failed.exception()
            raise UnhandledException(
                f"{self.name}: task {failed.get_name()} failed: {error!r}"
            ) from error


CURRENT: ContextVar[Incarnation | None] = ContextVar("simulated_incarnation", default=None)
