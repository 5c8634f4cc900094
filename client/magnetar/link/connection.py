"""A lasting connection to a server, which opens another link when a link breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from magnetar.errors import ClientClosed
from magnetar.link.requests import OnPush, OnSession, Requests
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Push
from magnetar_core.errors import MagnetarError
from magnetar_core.transport import LinkClosed
from magnetar_core.wire import group_pb2

log = logging.getLogger("magnetar")


class Connection(Requests):
    """Requests to a service at an address, repeated over as many links as needed."""

    def __init__(self, address: str, service: str, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._address = address
        self._service = service
        self._session: LinkSession | None = None
        self._waiters: dict[int, OnSession] = {}
        self._waiter_count = 0
        self._connecting: asyncio.Task[None] | None = None
        self._backoff = runtime.backoff()
        self._closed = False
        # Whether the last attempt to connect found nobody.
        self._nobody_is_there = False
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
    def address(self) -> str:
        """The address of the server."""
        return self._address

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
        """Call back whenever an attempt to connect fails; at once if the last one has failed.

        Returns:
            A function that ends that.
        """
        if self._nobody_is_there:
            self.loop.call_soon(callback)
        self._waiter_count += 1
        number = self._waiter_count
        self._watchers[number] = callback

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    def moved(self) -> bool:
        """Return False: whoever asks at an address has to look up another."""
        return False

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
                    self._nobody_is_there = True
                    for watcher in list(self._watchers.values()):
                        watcher()
                    continue
                except MagnetarError as error:
                    self._nobody_is_there = False
                    self._backoff.failures = max(1, self._backoff.failures)
                    if error.retriable:
                        continue
                    self._tell_waiters(error)
                    return
                self._nobody_is_there = False
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
