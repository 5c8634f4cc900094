"""Answers that leave when their records are durable (docs/protocol/rules.md, rule a)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import Counter

from magnetar_broker.environment import Environment
from magnetar_core.errors import ERROR_OF_CODE, DataLoss, MagnetarError
from magnetar_core.history.events import Event
from magnetar_core.history.history import History
from magnetar_core.server.commands import (
    Answer,
    Handler,
    Reply,
    Run,
    internal_failure,
    send_together,
)
from magnetar_storage.store import RowsUnreadable, StoreFailed

log = logging.getLogger(__name__)


class _Leaving:
    """Answers that leave together, and what is counted and noted when they do."""

    __slots__ = ("_answers", "_history", "_told", "counts")

    def __init__(self, history: History | None) -> None:
        self._answers: list[Answer] = []
        # What is counted when the answers leave.
        self.counts: defaultdict[Counter, int] = defaultdict(int)
        self._history = history
        self._told: list[Event] = []

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, reply: Reply, response: Any) -> None:
        """Add an answer, which must not be part of a frame: it would keep that alive."""
        self._answers.append((reply, response))

    def tell(self, event: Event) -> None:
        """Note an event of the history when the answers leave: one of them tells it."""
        self._told.append(event)

    def leave(self) -> None:
        """Send the answers."""
        if self._history is not None:
            for event in self._told:
                self._history.note(event)
        for counter, amount in self.counts.items():
            counter.inc(amount)
        send_together(self._answers)


class Answers:
    """Answers to a run of commands, parked once for each class of durability.

    A command that still waits when its run has been handled is answered alone, later.
    Source: docs/design/0014-durability.md.

    Attributes:
        written: those that leave when the run outlives the process.
        durable: those that leave when it is durable.
    """

    __slots__ = ("_environment", "durable", "written")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.written = _Leaving(environment.history)
        self.durable = _Leaving(environment.history)

    def park(self) -> None:
        """Let the answers leave when everything applied so far is as durable as they ask for.

        Call it once, when the last answer was added.
        """
        if self.written:
            self._environment.when_written(self.written.leave)
        if self.durable:
            self._environment.when_durable(self.durable.leave)


class Replies:
    """Answers of every handler of this broker."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def answer(self, reply: Reply, body: Any) -> None:
        """Send an answer when everything applied so far is durable."""
        self._environment.when_durable(lambda: reply.send(body))

    def answer_later(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with the result of a coroutine, or with the error that it raises."""

        async def run() -> None:
            try:
                self.answer(reply, await work)
            except StoreFailed:
                raise  # The process ends: an answer is no longer possible.
            except RowsUnreadable as error:
                self.refuse(DataLoss(f"the requested rows cannot be read: {error}"), reply)
            except Exception as error:
                self.fail(error, reply)

        self._environment.spawn(run())

    def together(self, handle: Callable[[Any, Reply, Answers], None]) -> Handler:
        """Return a handler of runs whose answers leave together."""

        def handle_run(run: Run) -> None:
            answers = Answers(self._environment)
            for command, reply in run.items:
                try:
                    handle(command, reply, answers)
                except Exception as error:
                    run.failed(error, command, reply)
            answers.park()

        return handle_run

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal when everything is durable that it may depend on."""

        def leave() -> None:
            self.refusals_of(error).inc()
            reply.fail(error)

        self._environment.when_durable(leave)

    def refusals_of(self, error: MagnetarError) -> Counter:
        """Return the counter of an error's kind."""
        return self._environment.metrics.refusals.labels(ERROR_OF_CODE[error.code].__name__)

    def handle(self, handler: Handler, command: Any, reply: Reply) -> None:
        """Call the handler of a command that was parked."""
        handler(Run([(command, reply)], lambda error, _, to: self.fail(error, to)))

    def fail(self, error: Exception, reply: Reply) -> None:
        """Fail a command that had waited, for a reason of the client's or by a bug."""
        self.refuse(refusal_of(error), reply)


def refusal_of(error: Exception) -> MagnetarError:
    """Return the error to tell to a client: of a bug, only that there is one."""
    if isinstance(error, MagnetarError):
        return error
    log.error("a command that had waited failed", exc_info=error)
    return internal_failure()
