"""Requests that are repeated until there is an answer, over as many links as needed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from magnetar.link.addresses import title_of
from magnetar.link.repeated_request import OnResult, RepeatedRequest
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Push, ResponseT
from magnetar.link.unanswered import Unanswered
from magnetar_core.errors import (
    MagnetarError,
)
from magnetar_core.requests import Request
from magnetar_core.transport.columns.kinds import Row
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.transport.spliced import Body, Spliced
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.transport.waiters import settle
from magnetar_core.wire import transaction_pb2

OnSession = Callable[[LinkSession | MagnetarError], None]
# Pushes for one consumer's partition, or for a member of a group, and the session they came on.
OnPush = Callable[[LinkSession, Push], None]
# What takes effect once, however often it is repeated: docs/design/0001-protocol.md, Late copies.
# CommandNewTxn has a token only where it is of a named sequence.
TOKEN_BODIES = frozenset(
    body
    for body in FIELD_OF_BODY
    if "call_token" in body.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]
    and body is not transaction_pb2.CommandNewTxn
)


class ConnectionBase(ABC):
    """Asks a server, which subclasses find.

    Attributes:
        runtime: the world of the client.
        unanswered: sends the commands that have to reach the server in order.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.unanswered = Unanswered(runtime, self)

    @property
    @abstractmethod
    def address(self) -> str:
        """The address of the server."""

    @property
    def title(self) -> str:
        """The name of the server in messages for people."""
        return title_of(self.address)

    @property
    @abstractmethod
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""

    @property
    @abstractmethod
    def failure(self) -> LinkClosed | None:
        """Why there is no link; None: there is one, or no attempt has failed."""

    @abstractmethod
    def when_connected(self, on_session: OnSession) -> int:
        """Call back with a session, or with the error that makes a session impossible.

        If there is a session, this happens at once. Returns a number for `forget`.
        """

    @abstractmethod
    def forget(self, number: int) -> None:
        """Cancel a call of `when_connected`."""

    @abstractmethod
    def when_unreachable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever an attempt to connect fails; at once if the last one has failed.

        Returns:
            A function that ends that.
        """

    @abstractmethod
    def moved(self) -> bool:
        """Note that the server has said that another one is in charge.

        Returns:
            Whether asking again may reach that one.
        """

    async def session(self) -> LinkSession:
        """Return a live session. This waits as long as it takes.

        Raises:
            MagnetarError: the server refuses this client, or the client is closed.
        """
        future: asyncio.Future[LinkSession] = asyncio.get_running_loop().create_future()

        def on_session(result: LinkSession | MagnetarError) -> None:
            if future.done():
                return
            if isinstance(result, MagnetarError):
                future.set_exception(result)
            else:
                future.set_result(result)

        number = self.when_connected(on_session)
        try:
            return await future
        finally:
            self.forget(number)

    def request(
        self,
        body: Request[ResponseT] | Spliced[Request[ResponseT]] | Row,
        *,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> Coroutine[Any, Any, ResponseT]:
        """Ask until there is an answer. Every command may be repeated.

        Args:
            body: the command.
            timeout_ms: how long to ask, in milliseconds; by default `operation_timeout_ms`.
            patient: whether the server may keep this request for a long time.
        Raises:
            OutcomeUnknown: the command was sent, and no answer came in time. It may have had its
                effect.
            LogUnavailable: the command was never sent. No effect.
            MagnetarError: the server refused, and asking again cannot help or the time is up.
        """
        self.runtime.require_loop()
        bear_token(body, self.runtime)
        return self.repeat(body, timeout_ms=timeout_ms, patient=patient)

    async def repeat(
        self,
        body: Request[ResponseT] | Spliced[Request[ResponseT]] | Row,
        *,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> ResponseT:
        """Do the same as request for a call that others may have begun elsewhere."""
        future: asyncio.Future[ResponseT] = self.runtime.loop.create_future()
        on_result: OnResult[ResponseT] = partial(settle, future)
        asked = self.request_soon(body, on_result, timeout_ms=timeout_ms, patient=patient)
        try:
            return await future
        finally:
            asked.cancel()

    def request_soon(
        self,
        body: Request[ResponseT] | Spliced[Request[ResponseT]] | Row,
        on_result: OnResult[ResponseT],
        *,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> RepeatedRequest[ResponseT]:
        """Do the same as repeat without waiting: call back with the reply or the MagnetarError."""
        if timeout_ms is None:
            timeout_ms = self.runtime.config.operation_timeout_ms
        return RepeatedRequest(self, body, on_result, timeout_ms=timeout_ms, patient=patient)


def bear_token(body: Body | Row, runtime: Runtime) -> None:
    """Mark a message as a new call: its repeats, and they alone, have the same token."""
    if type(body) in TOKEN_BODIES:
        body.call_token = runtime.new_id()  # type: ignore[union-attr, misc]
