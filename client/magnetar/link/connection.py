"""A lasting connection to a server, which opens another link when a link breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message

from magnetar.errors import ClientClosed
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Push, ResponseT, Result
from magnetar_core.errors import LogUnavailable, MagnetarError, OutcomeUnknown
from magnetar_core.frames import FIELD_OF_BODY
from magnetar_core.requests import Request
from magnetar_core.transport import LinkClosed
from magnetar_core.wire import group_pb2, transaction_pb2

log = logging.getLogger("magnetar")

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


class Connection:
    """Requests to a service at an address, repeated over as many links as needed."""

    def __init__(self, address: str, service: str, runtime: Runtime) -> None:
        self.address = address
        self._service = service
        self._runtime = runtime
        self._session: LinkSession | None = None
        self._waiters: dict[int, OnSession] = {}
        self._waiter_count = 0
        self._connecting: asyncio.Task[None] | None = None
        self._backoff = runtime.backoff()
        self._closed = False
        self._addressees: dict[tuple[object, object], OnPush] = {}
        # Who wants to hear of attempts to connect that fail.
        self._watchers: dict[int, Callable[[], None]] = {}

    def register(self, consumer_id: int, partition: int, on_push: OnPush) -> None:
        """Call `on_push` with what the server pushes to this consumer."""
        self._addressees[consumer_id, partition] = on_push

    def unregister(self, consumer_id: int, partition: int) -> None:
        """Stop calling it."""
        self._addressees.pop((consumer_id, partition), None)

    def register_member(self, group: str, member_id: str, on_push: OnPush) -> None:
        """Call `on_push` with what the server pushes to this member of a group."""
        self._addressees[group, member_id] = on_push

    def unregister_member(self, group: str, member_id: str) -> None:
        """Stop calling it."""
        self._addressees.pop((group, member_id), None)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the client."""
        return self._runtime.loop

    @property
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""
        session = self._session
        return None if session is None or session.closed else session

    def when_connected(self, on_session: OnSession) -> int:
        """Call back with a session, or with the error that makes a session impossible.

        If there is a session, this happens at once. Returns a number for `forget`.
        """
        self._waiter_count += 1
        number = self._waiter_count
        session = self.live_session
        if session is not None:
            on_session(session)
            return number
        if self._closed:
            on_session(ClientClosed())
            return number
        self._waiters[number] = on_session
        if self._connecting is None:
            self._connecting = self._runtime.spawn(self._connect(), f"connect {self.address}")
        return number

    def forget(self, number: int) -> None:
        """Cancel a call of `when_connected`."""
        self._waiters.pop(number, None)

    def when_unreachable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever an attempt to connect fails.

        Returns:
            A function that ends that.
        """
        self._waiter_count += 1
        number = self._waiter_count
        self._watchers[number] = callback

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

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
        if timeout_ms is None:
            timeout_ms = self._runtime.config.operation_timeout_ms
        if type(body) in TOKEN_BODIES:
            # A call anew, also where its message is not: its repeats, and they alone, bear it.
            body.call_token = self._runtime.new_id()  # type: ignore[attr-defined]
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
            if not error.retriable:
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
                    if isinstance(last, MagnetarError):
                        await asyncio.sleep(backoff.next_ms() / 1000)
                    session = self.live_session or await self.session()
                    was_in_doubt, in_doubt = in_doubt, True
                    try:
                        return await session.call(body, patient=patient)
                    except LinkClosed as error:
                        last = error
                    except MagnetarError as error:
                        if not error.retriable:
                            raise
                        in_doubt = was_in_doubt
                        last = error
        except TimeoutError:
            if in_doubt:
                raise self._no_answer(body, timeout_ms) from last
            if isinstance(last, MagnetarError):
                raise last from None
            raise LogUnavailable(
                f"no link to {self.address} within {timeout_ms:.0f} ms;"
                f" {body.DESCRIPTOR.name} was not sent"
            ) from last

    def _no_answer(self, body: Message, timeout_ms: float) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"no answer to {body.DESCRIPTOR.name} from {self.address} within {timeout_ms:.0f} ms;"
            " it may have happened, ask again to know"
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
            isinstance(result, MagnetarError) and result.retriable
        ):
            self._spawn_request(body, on_result)
        else:
            on_result(result)

    def _spawn_request(self, body: Request[ResponseT], on_result: OnResult[ResponseT]) -> None:
        async def tell() -> None:
            result: ResponseT | MagnetarError
            try:
                result = await self.request(body)
            except MagnetarError as error:
                result = error
            except asyncio.CancelledError:
                on_result(ClientClosed("the client was closed"))
                raise
            on_result(result)

        self._runtime.spawn(tell(), f"{body.DESCRIPTOR.name} to {self.address}")

    def close(self) -> None:
        """Close the link; everybody who waits gets ClientClosed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._session is not None:
            self._session.close("the client is closing")
        self._tell_waiters(ClientClosed())

    async def _connect(self) -> None:
        try:
            while self._waiters and not self._closed:
                if self._backoff.failures:
                    # A first repeat goes at once, later ones wait.
                    await asyncio.sleep(self._backoff.next_ms() / 1000)
                try:
                    session = await self._attempt()
                except (LinkClosed, TimeoutError) as error:
                    log.info("cannot reach %s: %s", self.address, error)
                    self._backoff.failures = max(1, self._backoff.failures)
                    for watcher in list(self._watchers.values()):
                        watcher()
                    continue
                except MagnetarError as error:
                    self._backoff.failures = max(1, self._backoff.failures)
                    if error.retriable:
                        continue
                    self._tell_waiters(error)
                    return
                self._session = session
                session.on_close(partial(self._on_closed, session))
                if not session.closed:
                    self._tell_waiters(session)
        finally:
            self._connecting = None

    async def _attempt(self) -> LinkSession:
        session = LinkSession(self.address, self._runtime, self._on_push)
        try:
            async with asyncio.timeout(self._runtime.config.connect_timeout_ms / 1000):
                link = await self._runtime.transport.connect(
                    self.address, self._service, session.on_frame, session.on_link_closed
                )
                await session.handshake(link)
        except BaseException:
            session.close(f"no handshake with {self.address}")
            raise
        return session

    def _on_closed(self, session: LinkSession) -> None:
        # A link that never answered anything counts as a failed attempt.
        if session.useful:
            self._backoff.reset()
        else:
            self._backoff.failures = max(1, self._backoff.failures)

    def _tell_waiters(self, result: LinkSession | MagnetarError) -> None:
        waiters, self._waiters = self._waiters, {}
        for on_session in waiters.values():
            on_session(result)

    def _on_push(self, session: LinkSession, body: Push) -> None:
        if session is not self._session:
            return
        session.useful = True
        addressee: tuple[object, object]
        if isinstance(body, group_pb2.CommandGroupChange):
            addressee = (body.group, body.member_id)
        else:
            addressee = (body.consumer_id, body.partition)
        on_push = self._addressees.get(addressee)
        if on_push is not None:
            on_push(session, body)
