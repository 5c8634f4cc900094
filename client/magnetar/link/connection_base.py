"""Requests that are repeated until there is an answer, over as many links as needed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message

from magnetar.errors import ClientClosed, failure_of
from magnetar.link.addresses import title_of
from magnetar.link.repeats import Repeats
from magnetar.link.runtime import Runtime, awaited
from magnetar.link.session import LinkSession, Push, ResponseT, Result
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    LogUnavailable,
    MagnetarError,
    OutcomeUnknown,
)
from magnetar_core.requests import Request
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.transport.transport import LinkClosed, LinkRefused
from magnetar_core.wire import transaction_pb2

# What request_soon() tells.
OnResult = Callable[[MagnetarError | ResponseT], None]
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

# Commands that only ask, or begin something that ends by itself: it is harmless if one arrived.
HARMLESS_BODIES = frozenset(
    body
    for body, field in FIELD_OF_BODY.items()
    if field in ("get_cluster_info", "lookup", "new_txn", "peek", "read")
    or field.startswith(("describe_", "list_"))
)


class ConnectionBase(ABC):
    """Asks a server, which subclasses find.

    Attributes:
        repeats: sends the commands that have to reach the server in order.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.repeats = Repeats(runtime, self)

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

    @property
    def runtime(self) -> Runtime:
        """The world of the client."""
        return self._runtime

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

    async def request(
        self,
        body: Request[ResponseT],
        *,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> ResponseT:
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
        self._runtime.require_loop()
        bear_token(body, self._runtime)
        return await self.repeat(body, timeout_ms=timeout_ms, patient=patient)

    async def repeat(
        self,
        body: Request[ResponseT],
        *,
        timeout_ms: float | None = None,
        patient: bool = False,
    ) -> ResponseT:
        """Do the same as request for a call that others may have begun elsewhere."""
        if timeout_ms is None:
            timeout_ms = self._runtime.config.operation_timeout_ms
        session = self.live_session
        if session is None:
            return await self._insist(body, timeout_ms, timeout_ms, patient, None)
        asked_at_ms = self._runtime.now_ms()
        interruption: Exception
        try:
            return await session.call(body, patient=patient, timeout_ms=timeout_ms)
        except TimeoutError as error:
            raise self._no_answer(body, timeout_ms) from error
        except LinkClosed as error:
            interruption = error
        except MagnetarError as error:
            if not self._may_repeat(error):
                raise
            interruption = error
        remaining_ms = timeout_ms - (self._runtime.now_ms() - asked_at_ms)
        return await self._insist(body, timeout_ms, remaining_ms, patient, interruption)

    async def _insist(
        self,
        body: Request[ResponseT],
        timeout_ms: float,
        remaining_ms: float,
        patient: bool,
        last: Exception | None,
    ) -> ResponseT:
        """The course of a request that did not succeed at once.

        Args:
            last: what interrupted the first attempt, if there was one.
        """
        backoff = self._runtime.backoff()
        # Sent, and perhaps never answered.
        in_doubt = isinstance(last, LinkClosed)
        try:
            async with asyncio.timeout(remaining_ms / 1000):
                while True:
                    # A refusal by LogUnavailable may have had an effect.
                    doubted = in_doubt or isinstance(last, LogUnavailable)
                    pause_ms = backoff.next_ms() if isinstance(last, MagnetarError) else 0.0
                    session = await self._next_session(body, pause_ms, in_doubt=doubted)
                    was_in_doubt, in_doubt = in_doubt, True
                    try:
                        return await session.call(body, patient=patient)
                    except LinkClosed as error:
                        last = error
                    except MagnetarError as error:
                        if not self._may_repeat(error):
                            raise
                        in_doubt = was_in_doubt
                        last = error
        except TimeoutError:
            if in_doubt:
                raise self._no_answer(body, timeout_ms) from last
            if isinstance(last, MagnetarError):
                raise last from None
            failure = self.failure
            kind = failure.kind if isinstance(failure, LinkRefused) else LogUnavailable
            raise kind(
                f"no link to {self.title} within {timeout_ms:.0f} ms;"
                f" {body.DESCRIPTOR.name} was not sent{_because(failure)}"
            ) from failure

    async def _next_session(self, body: Message, pause_ms: float, *, in_doubt: bool) -> LinkSession:
        """Return a live session, to send a request again after a pause.

        Raises:
            OutcomeUnknown: the server refuses this client, or the client is closed, and the request
                may have taken effect.
            MagnetarError: the server refuses this client, or the client is closed.
        """
        try:
            if pause_ms:
                await self._runtime.pause(pause_ms)
            return self.live_session or await self.session()
        except MagnetarError as error:
            if not in_doubt or type(body) in HARMLESS_BODIES:
                raise
            raise OutcomeUnknown(
                f"{body.DESCRIPTOR.name} may have happened, and cannot be sent again to know:"
                f" {error}"
            ) from error

    def _may_repeat(self, error: MagnetarError) -> bool:
        return error.retriable and (error.kind is not ErrorKind.LOOK_UP or self.moved())

    def _no_answer(self, body: Message, timeout_ms: float) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"no answer to {body.DESCRIPTOR.name} from {self.title} within {timeout_ms:.0f} ms;"
            f" it may have happened, ask again to know{_because(self.failure)}"
        )

    def request_soon(self, body: Request[ResponseT], on_result: OnResult[ResponseT]) -> None:
        """Do the same as request without waiting: call back with the reply or the MagnetarError.

        Normally this takes no task.
        """
        session = self.live_session
        if session is None:
            self._spawn_request(body, on_result)
        else:
            session.request(body, partial(self._on_soon, body, on_result))

    def _on_soon(
        self,
        body: Request[ResponseT],
        on_result: OnResult[ResponseT],
        result: Result[ResponseT],
    ) -> None:
        if isinstance(result, LinkClosed) or (
            isinstance(result, MagnetarError) and self._may_repeat(result)
        ):
            self._spawn_request(body, on_result)
        else:
            on_result(result)

    def _spawn_request(self, body: Request[ResponseT], on_result: OnResult[ResponseT]) -> None:
        def tell(asking: asyncio.Task[ResponseT]) -> None:
            # Not the task itself: the client's close may cancel it before its first step.
            if asking.cancelled():
                on_result(ClientClosed("the client was closed"))
                return
            error = asking.exception()
            if error is None:
                on_result(asking.result())
            else:
                on_result(failure_of(error, asking.get_name()))

        name = f"{body.DESCRIPTOR.name} to {self.title}"
        asking = self._runtime.spawn(self.request(body), name, awaited)
        self._runtime.when_done(on_result, asking, tell)


def _because(failure: LinkClosed | None) -> str:
    return "" if failure is None else f"; {failure}"


def bear_token(body: Message, runtime: Runtime) -> None:
    """Mark a message as a new call: its repeats, and they alone, have the same token."""
    if type(body) in TOKEN_BODIES:
        body.call_token = runtime.new_id()  # type: ignore[attr-defined]
