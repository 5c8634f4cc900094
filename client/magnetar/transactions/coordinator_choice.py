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
from typing import TYPE_CHECKING, Any

from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from magnetar.link.cluster import Cluster
    from magnetar.link.connection import Connection

log = logging.getLogger("magnetar")

Question = asyncio.Task[transaction_pb2.CommandNewTxnResponse]


class CoordinatorChoice:
    """The choice of coordinators for a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._turn = 0
        # Who did not answer, with the task that waits until it does.
        self._silent: dict[Connection, asyncio.Task[None]] = {}

    async def new_txn(
        self, command: transaction_pb2.CommandNewTxn
    ) -> tuple[transaction_pb2.CommandNewTxnResponse, Connection]:
        """Begin a transaction at the first coordinator that answers.

        The next coordinator is asked when nobody listens at the address, or when there is no answer
        within coordinator_patience_ms. A transaction that a slow coordinator begins after all is
        aborted.

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
        asked: dict[Question, Connection] = {}
        try:
            return await self._ask(command, self._in_order(every), asked)
        finally:
            for question, connection in asked.items():
                question.add_done_callback(partial(_abort_late, connection))

    async def _ask(
        self,
        command: transaction_pb2.CommandNewTxn,
        order: list[Connection],
        asked: dict[Question, Connection],
    ) -> tuple[transaction_pb2.CommandNewTxnResponse, Connection]:
        """Args: asked: takes the questions; those that are left in it have no answer yet."""
        patience_ms = self._runtime.config.coordinator_patience_ms
        last: MagnetarError = LogUnavailable("no coordinator answers")
        for connection in order:
            question = self._runtime.spawn(connection.request(command), "begin a transaction")
            asked[question] = connection
            others_are_left = connection is not order[-1]
            while question in asked or (asked and not others_are_left):
                timeout_ms = patience_ms if others_are_left else None
                done = await _first_of(asked, connection if others_are_left else None, timeout_ms)
                if not done:
                    self._suspect(connection)
                    break
                for one in done:
                    answerer = asked.pop(one)
                    error = one.exception()
                    if error is None:
                        self._trust(answerer)
                        return one.result(), answerer
                    if not isinstance(error, MagnetarError) or not error.kind.may_pass:
                        raise error
                    self._suspect(answerer)
                    last = error
        raise last

    def _in_order(self, every: Iterable[Connection]) -> list[Connection]:
        """Each begins in its turn; those that do not answer come last."""
        self._turn += 1
        answering: list[Connection] = []
        silent: list[Connection] = []
        for one in every:
            (silent if one in self._silent else answering).append(one)
        return _rotated(answering, self._turn) + _rotated(silent, self._turn)

    def _trust(self, connection: Connection) -> None:
        waiting = self._silent.pop(connection, None)
        if waiting is not None:
            waiting.cancel()

    def _suspect(self, connection: Connection) -> None:
        if connection not in self._silent:
            log.info("coordinator %s does not answer: others are asked", connection.address)
            self._silent[connection] = self._runtime.spawn(
                self._until_answer(connection), f"wait for {connection.address}"
            )

    async def _until_answer(self, connection: Connection) -> None:
        """Ask something that it answers when its disk does, too."""
        question = transaction_pb2.CommandListTxns(statuses=[common_pb2.OPEN], limit=1)
        while True:
            try:
                await connection.request(question)
            except MagnetarError as error:
                if error.kind.may_pass:
                    continue  # It has taken its whole time.
                log.debug("%s answers: %s", connection.address, error)
            break
        self._silent.pop(connection, None)


async def _first_of(
    asked: Iterable[Question], connection: Connection | None, timeout_ms: float | None
) -> list[Question]:
    """Wait until questions are answered.

    Args:
        connection: wait no longer when there is nobody at its address.
    Returns:
        Those that are; none when the time is up, or when nobody is there.
    """
    waiting: set[asyncio.Future[Any]] = set(asked)
    nobody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    unwatch: Callable[[], None] = lambda: None  # noqa: E731
    if connection is not None:
        unwatch = connection.when_unreachable(partial(_settle, nobody))
        waiting.add(nobody)
    try:
        await asyncio.wait(
            waiting,
            timeout=None if timeout_ms is None else timeout_ms / 1_000,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        unwatch()
        nobody.cancel()
    return [one for one in asked if one.done()]


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _abort_late(connection: Connection, question: Question) -> None:
    """Nobody waits any more for the transaction that a slow coordinator began."""
    if question.cancelled() or question.exception() is not None:
        return
    abort = transaction_pb2.CommandEndTxn(
        txn_id=question.result().txn_id, txn_action=common_pb2.ABORT
    )
    connection.request_soon(abort, lambda result: None)


def _rotated(items: list[Connection], turn: int) -> list[Connection]:
    first = turn % len(items) if items else 0
    return items[first:] + items[:first]
