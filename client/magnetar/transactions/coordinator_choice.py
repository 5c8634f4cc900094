"""Chooses the coordinator of a transaction that any coordinator may take.

Coordinators that answer take turns. A coordinator that does not answer is left out. A question to
it stays open, and it takes turns again when it answers. So a coordinator that is dead or hangs
delays a single transaction for a moment, and the next transactions not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.errors import ClientClosed, failure_of
from magnetar.link.first_answer import FirstAnswer
from magnetar.link.runtime import awaited
from magnetar_core.errors import MagnetarError
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from magnetar.link.cluster import Cluster
    from magnetar.link.connection_base import ConnectionBase

log = logging.getLogger("magnetar")

Question = asyncio.Task[Opened]
# With the connection to the coordinator that gave it.
Answer = tuple[Opened, "ConnectionBase"]
# Told the coordinator that has answered, or None, and its answer, or why there is none.
OnAnswer = Callable[["ConnectionBase | None", "Opened | MagnetarError"], None]


class CoordinatorChoice:
    """The choice of coordinators for a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._turn = 0
        # Coordinators that did not answer, with the tasks that wait until they do.
        self._silent: dict[ConnectionBase, asyncio.Task[None]] = {}

    def new_txn(self, command: NewTxn, on_answer: OnAnswer) -> Callable[[], object]:
        """Begin a transaction at the first coordinator that answers.

        Args:
            on_answer: told the answer and the coordinator that gave it, or the error of _ask().
        Returns:
            A function that ends that. Where several coordinators were asked, a transaction that
            begins after all is aborted.
        """
        only = self._cluster.only_coordinator
        if only is not None:
            return only.request_soon(command, partial(on_answer, only)).cancel

        def on_asked(asking: asyncio.Task[Answer]) -> None:
            if asking.cancelled():
                on_answer(None, ClientClosed("the client was closed"))
                return
            error = asking.exception()
            if error is not None:
                on_answer(None, failure_of(error, asking.get_name()))
                return
            answer, coordinator = asking.result()
            on_answer(coordinator, answer)

        asking = self._runtime.spawn(partial(self._ask, command), "choose a coordinator", awaited)
        self._runtime.when_done(partial(on_answer, None), asking, on_asked)
        return asking.cancel

    async def _ask(self, command: NewTxn) -> Answer:
        """Begin a transaction at the first coordinator that answers.

        The next coordinator is asked when no server listens at the address, or when there is no
        answer within coordinator_patience_ms. A transaction that a slow coordinator begins after
        all is aborted.

        Returns:
            The answer, and the connection to the coordinator that gave it.
        Raises:
            LogUnavailable: no coordinator answers in time. No lasting effect.
            OutcomeUnknown: no coordinator answers in time. No lasting effect.
            MagnetarError: the coordinator that answered refuses.
        """
        every = await self._cluster.coordinators()
        if len(every) == 1:
            return await every[0].request(command), every[0]
        question: FirstAnswer[Opened] = FirstAnswer(
            self._runtime,
            lambda connection: connection.request(command),
            name="begin a transaction",
            patience_ms=self._runtime.config.coordinator_patience_ms,
            is_no_answer=lambda error: error.kind.may_pass,
            on_silent=self._suspect,
        )
        try:
            answer = await question.among(self._in_order(every))
        finally:
            for late, connection in question.open.items():
                self._runtime.when_done(self._runtime.fail, late, partial(_abort_late, connection))
        if answer is None:
            raise next(reversed(question.failures.values()))
        self._trust(answer[1])
        return answer

    def _in_order(self, every: Iterable[ConnectionBase]) -> list[ConnectionBase]:
        """Each begins in its turn; those that do not answer come last."""
        self._turn += 1
        answering: list[ConnectionBase] = []
        silent: list[ConnectionBase] = []
        for one in every:
            (silent if one in self._silent else answering).append(one)
        return _rotated(answering, self._turn) + _rotated(silent, self._turn)

    def _trust(self, connection: ConnectionBase) -> None:
        waiting = self._silent.pop(connection, None)
        if waiting is not None:
            waiting.cancel()

    def _suspect(self, connection: ConnectionBase) -> None:
        if connection not in self._silent:
            log.info("coordinator %s does not answer: others are asked", connection.title)
            self._silent[connection] = self._runtime.spawn(
                partial(self._until_answer, connection),
                f"wait for {connection.title}",
                self._runtime.fail,
            )

    async def _until_answer(self, connection: ConnectionBase) -> None:
        """Ask something that it answers when its disk does, too."""
        question = transaction_pb2.CommandListTxns(statuses=[common_pb2.OPEN], limit=1)
        while True:
            try:
                await connection.request(question)
            except MagnetarError as error:
                if error.kind.may_pass:
                    continue  # It has taken its whole time.
                log.debug("%s answers: %s", connection.title, error)
            break
        self._silent.pop(connection, None)


def _abort_late(connection: ConnectionBase, question: Question) -> None:
    """Abort the transaction that a slow coordinator began too late for its caller."""
    if question.cancelled() or question.exception() is not None:
        return
    abort = EndTxn(question.result().txn_id, common_pb2.ABORT)
    connection.request_soon(abort, lambda result: None)


def _rotated(items: list[ConnectionBase], turn: int) -> list[ConnectionBase]:
    first = turn % len(items) if items else 0
    return items[first:] + items[:first]
