"""Answers that leave when their records are durable (docs/protocol/rules.md, rule a)."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from magnetar_broker.environment import Environment
from magnetar_core.errors import ERROR_OF_CODE, DataLoss, MagnetarError
from magnetar_core.server.commands import Handler, Reply, Run, internal_failure
from magnetar_storage.store import RowsUnreadable, StoreFailed

log = logging.getLogger(__name__)


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

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal when everything is durable that it may depend on."""

        def leave() -> None:
            self.count_refusal(error)
            reply.fail(error)

        self._environment.when_durable(leave)

    def count_refusal(self, error: MagnetarError) -> None:
        """Count an error that leaves."""
        name = ERROR_OF_CODE[error.code].__name__
        self._environment.metrics.refusals.labels(name).inc()

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
