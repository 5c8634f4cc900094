"""A lasting connection to a server, which opens another link when a link breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from magnetar.errors import ClientClosed
from magnetar.link.addresses import shard_of
from magnetar.link.connection_base import ConnectionBase, OnPush, OnSession
from magnetar.link.members import BROKER
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Unasked
from magnetar_core.errors import MagnetarError
from magnetar_core.transport.transport import LinkClosed, LinkRefused
from magnetar_core.wire import common_pb2, group_pb2

# A server that ends while TLS begins looks like one that refuses; not so often in a row.
REFUSALS_MAX = 3

# The receiver of a push: a consumer's id and a partition, or a group and a member's id.
Addressee = tuple[int, int] | tuple[str, str]

log = logging.getLogger("magnetar")


class Connection(ConnectionBase):
    """Requests to a service at an address, repeated over as many links as needed."""

    def __init__(
        self,
        address: str,
        service: str,
        runtime: Runtime,
        *,
        on_owners_changed: Callable[[], None] = lambda: None,
        on_silent: Callable[[], None] = lambda: None,
    ) -> None:
        """A connection without a link.

        Args:
            on_owners_changed: called when the server says that shards have other owners.
            on_silent: called now and then while the owner of a shard leaves a request without an
                answer.
        """
        super().__init__(runtime)
        self._address = address
        self._service = service
        self._on_owners_changed = on_owners_changed
        self._on_silent = on_silent
        self._session: LinkSession | None = None
        self._waiters: dict[int, OnSession] = {}
        self._waiter_count = 0
        self._connecting: asyncio.Task[None] | None = None
        self._backoff = runtime.backoff()
        self._closed = False
        # Whether the last attempt to connect found no server.
        self._nobody_is_there = False
        # Why the last attempt failed, since there was a link.
        self._failure: LinkClosed | None = None
        # How many of the last attempts in a row failed since the two sides cannot talk.
        self._refusal_count = 0
        self._addressees: dict[Addressee, OnPush] = {}
        # Called when an attempt to connect fails.
        self._watchers: dict[int, Callable[[], None]] = {}

    def register(self, addressee: Addressee, on_push: OnPush) -> None:
        """Call `on_push` with what the server pushes to this consumer or member of a group."""
        self._addressees[addressee] = on_push

    def unregister(self, addressee: Addressee) -> None:
        """Stop calling it."""
        self._addressees.pop(addressee, None)

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._address

    @property
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""
        session = self._session
        return None if session is None or session.closed else session

    @property
    def is_unreachable(self) -> bool:
        """Whether there is no link, and the last attempt to connect found no server."""
        return self._nobody_is_there and self.live_session is None

    @property
    def failure(self) -> LinkClosed | None:
        """Why there is no link; None: there is one, or no attempt has failed."""
        return self._failure if self.live_session is None else None

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for a link, or for an answer."""
        session = self.live_session
        return not self._waiters and (session is None or session.is_idle)

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
            on_session(ClientClosed("the client is closed"))
            return number
        self._waiters[number] = on_session
        if self._connecting is None:
            self._connecting = self.runtime.spawn(
                self._connect, f"connect {self.address}", self._tell_waiters
            )
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
            self.runtime.call_soon(self.runtime.fail, callback)
        self._waiter_count += 1
        number = self._waiter_count
        self._watchers[number] = callback

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    def moved(self) -> bool:
        """Return False: a caller that asks at an address has to look up another one."""
        return False

    def close(self) -> None:
        """Close the link; all calls that wait get ClientClosed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._session is not None:
            self._session.close("the client is closing")
        self._tell_waiters(ClientClosed("the client is closed"))

    def give_up(self, reason: str) -> None:
        """Close the link: requests under way go to the server that has the shard now."""
        if self._connecting is not None and not self._waiters:
            self._connecting.cancel()
            self._connecting = None
        if self._session is not None:
            self._session.close(reason)

    async def _connect(self) -> None:
        try:
            while self._waiters and not self._closed:
                if self._backoff.failures:
                    # A first repeat goes at once, later ones wait.
                    await asyncio.sleep(self._backoff.next_ms() / 1000)
                try:
                    session = await self._attempt()
                except LinkClosed as error:
                    self._failed(error)
                    if isinstance(error, LinkRefused) and self._is_refused_for_good():
                        refusal = error.kind(str(error))
                        refusal.__cause__ = error
                        self._tell_waiters(refusal)
                        return
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
                self._failure, self._refusal_count = None, 0
                self.runtime.has_reached_a_server = True
                self._session = session
                session.on_close(partial(self._on_closed, session))
                if not session.closed:
                    self._tell_waiters(session)
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None

    def _failed(self, error: LinkClosed) -> None:
        """Note that an attempt has failed. The first one after a link is logged."""
        level = logging.INFO if self._failure is not None else logging.WARNING
        log.log(level, "%s; trying again", error)
        self._failure = error
        self._refusal_count = self._refusal_count + 1 if isinstance(error, LinkRefused) else 0
        self._backoff.failures = max(1, self._backoff.failures)
        self._nobody_is_there = True

    def _is_refused_for_good(self) -> bool:
        """Return whether a client that never reached its cluster fails with a refusal now.

        Later on, a certificate or a token that came late is worth the usual patience.
        """
        return self._refusal_count >= REFUSALS_MAX and not self.runtime.has_reached_a_server

    async def _attempt(self) -> LinkSession:
        shard = shard_of(self.address)
        if shard is not None and not shard.server:
            raise LinkClosed(f"no server has shard {shard.place.shard} at the moment")
        config = self.runtime.config
        is_broker = self._service == BROKER
        session = LinkSession(
            self.address,
            self.runtime,
            self._on_push,
            # A server that keeps its shards for good has no successor who could answer.
            on_silent=None if shard is None else self._on_silent,
            patience_ms=config.broker_patience_ms if is_broker else config.coordinator_patience_ms,
        )
        try:
            async with asyncio.timeout(config.connect_timeout_ms / 1000):
                link = await self.runtime.transport.connect(
                    self.address, self._service, session.on_frame, session.on_link_closed
                )
                await session.handshake(link)
        except BaseException as error:
            session.close(f"no handshake with {self.title}")
            if isinstance(error, TimeoutError):
                raise LinkClosed(
                    f"{self.title} did not answer within {config.connect_timeout_ms:.0f} ms"
                ) from None
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
            self.runtime.tell(on_session, result)

    def _on_push(self, session: LinkSession, body: Unasked) -> None:
        if isinstance(body, common_pb2.CommandOwnersChanged):
            self._on_owners_changed()
            return
        if session is not self._session:
            return
        session.useful = True
        addressee: Addressee
        if isinstance(body, group_pb2.CommandGroupChange):
            addressee = (body.group, body.member_id)
        else:
            addressee = (body.consumer_id, body.partition)
        on_push = self._addressees.get(addressee)
        if on_push is not None:
            on_push(session, body)
