"""Asks servers of which each can answer, one after the other, until one does.

The next server is asked when no server listens at an address, or when an answer takes too long. The
earlier questions stay open: a slow server may still be the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from magnetar.errors import ClientClosed
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.runtime import Runtime, awaited
from magnetar_core.errors import MagnetarError

T = TypeVar("T")


class FirstAnswer(Generic[T]):
    """A question to several servers.

    Attributes:
        open: questions without an answer, with the servers that were asked; the caller decides what
            becomes of them.
        failures: the errors of servers that could not answer.
    """

    def __init__(
        self,
        runtime: Runtime,
        ask: Callable[[ConnectionBase], Coroutine[Any, Any, T]],
        *,
        name: str,
        patience_ms: float,
        is_no_answer: Callable[[MagnetarError], bool],
        on_silent: Callable[[ConnectionBase], None] = lambda connection: None,
    ) -> None:
        """A question that was not asked yet.

        Args:
            ask: sends the question to a server.
            name: the name of the tasks.
            patience_ms: how long a server may take before the next one is asked too.
            is_no_answer: whether another server may know more than this error.
            on_silent: called with each server that cannot answer, or takes too long.
        """
        self.open: dict[asyncio.Task[T], ConnectionBase] = {}
        self.failures: dict[ConnectionBase, MagnetarError] = {}
        self._runtime = runtime
        self._ask = ask
        self._name = name
        self._patience_ms = patience_ms
        self._is_no_answer = is_no_answer
        self._on_silent = on_silent

    async def among(self, order: Sequence[ConnectionBase]) -> tuple[T, ConnectionBase] | None:
        """Ask the servers in this order.

        Returns:
            The answer, and who gave it; None: no server answered, and `failures` says why.
        Raises:
            ClientClosed: the client was closed meanwhile.
            MagnetarError: a server refuses, and asking others cannot help.
        """
        for place, connection in enumerate(order):
            others_are_left = place + 1 < len(order)
            question = self._runtime.spawn(partial(self._ask, connection), self._name, awaited)
            self.open[question] = connection
            while question in self.open or (self.open and not others_are_left):
                done = await _first_of(
                    self.open,
                    connection if others_are_left else None,
                    self._patience_ms if others_are_left else None,
                )
                if not done:
                    self._on_silent(connection)
                    break
                for one in done:
                    answerer = self.open.pop(one)
                    if one.cancelled():
                        # Otherwise it would look as if the caller had been cancelled.
                        raise ClientClosed("the client was closed")
                    error = one.exception()
                    if error is None:
                        return one.result(), answerer
                    if not isinstance(error, MagnetarError) or not self._is_no_answer(error):
                        raise error
                    self.failures[answerer] = error
                    self._on_silent(answerer)
        return None

    async def cancel(self) -> None:
        """Take the open questions back: their answers are no longer needed."""
        for question in self.open:
            question.cancel()
        if self.open:
            await asyncio.wait(self.open)
        self.open.clear()


async def _first_of(
    asked: Iterable[asyncio.Task[T]], connection: ConnectionBase | None, timeout_ms: float | None
) -> list[asyncio.Task[T]]:
    """Wait until questions are answered.

    Args:
        connection: stop waiting when no server is at its address.
    Returns:
        The answered questions; none when the time is up, or when no server is there.
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
