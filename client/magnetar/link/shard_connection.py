"""Requests to the present owner of a shard, wherever that is."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.link.addresses import shard_of
from magnetar.link.connection import Addressee, Connection
from magnetar.link.connection_base import ConnectionBase, OnPush, OnSession
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession
from magnetar_core.errors import ClusterMismatch, MagnetarError
from magnetar_core.transport.transport import LinkClosed


class ShardConnection(ConnectionBase):
    """The connection to the server of a shard, a partition or a TCID, replaced when it moves.

    Calls that wait for a link then wait for one to the other server, and what is not answered is
    written there. Answers on the link to the server before count, and consumers stay attached until
    it breaks, or that server refuses; where shards change their owner, the code that moves this
    closes it.
    """

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        *,
        look_up: Callable[[], None],
        on_unreachable: Callable[[], None],
        on_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """The connection to the first server that is known.

        Args:
            look_up: called when the server says that another one is in charge.
            on_unreachable: called whenever an attempt to connect fails while a call waits.
                on_waiting: called when a call begins to wait for a link.
        """
        super().__init__(runtime)
        self.connection = connection
        self._look_up = look_up
        self._on_unreachable = on_unreachable
        self._on_waiting = on_waiting
        self._waiters: dict[int, OnSession] = {}
        self._waiter_count = 0
        # While a call waits: ends the waiting at the present connection.
        self._stop_waiting: Callable[[], None] | None = None
        # Called when an attempt to connect fails; the value removes the listener.
        self._watchers: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        # With the connections that were told: a consumer stays attached through an earlier one.
        self._addressees: dict[Addressee, tuple[OnPush, list[Connection]]] = {}

    @property
    def address(self) -> str:
        """The address of the server that has the shard now, as far as is known."""
        return self.connection.address

    @property
    def shard(self) -> int | None:
        """The number of the shard; None: its server has it for good."""
        found = shard_of(self.address)
        return None if found is None else found.place.shard

    @property
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""
        return self.connection.live_session

    @property
    def failure(self) -> LinkClosed | None:
        """Why there is no link; None: there is one, or no attempt has failed."""
        return self.connection.failure

    @property
    def is_waited_for(self) -> bool:
        """Whether a call waits for a link."""
        return bool(self._waiters)

    def when_connected(self, on_session: OnSession) -> int:
        """Call back with a session, or with the error that makes a session impossible.

        If there is a session, this happens at once. Returns a number for `forget`.
        """
        self._waiter_count += 1
        session = self.live_session
        if session is not None:
            on_session(session)
        else:
            self._waiters[self._waiter_count] = on_session
            if self._stop_waiting is None:
                self._wait()
        return self._waiter_count

    def forget(self, number: int) -> None:
        """Cancel a call of `when_connected`."""
        if self._waiters.pop(number, None) is not None and not self._waiters:
            self._wait_no_more()

    def when_unreachable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever an attempt to connect fails; at once if the last one has failed.

        Returns:
            A function that ends that.
        """
        self._waiter_count += 1
        number = self._waiter_count
        self._watchers[number] = (callback, self.connection.when_unreachable(callback))

        def unwatch() -> None:
            _, stop = self._watchers.pop(number, (None, lambda: None))
            stop()

        return unwatch

    def moved(self) -> bool:
        """Have the server looked up again, and return that asking again may reach another one."""
        self._look_up()
        return True

    def move(self, connection: Connection) -> None:
        """Use the connection to another server from now on."""
        if connection is self.connection:
            return
        self._wait_no_more()
        self.connection = connection
        for addressee, (on_push, told) in self._addressees.items():
            # Forget requests on the link that broke: no answer can come.
            for former in [one for one in told if one.live_session is None]:
                told.remove(former)
                former.unregister(addressee)
            if connection not in told:
                told.append(connection)
                connection.register(addressee, on_push)
        for number, (callback, stop) in self._watchers.items():
            stop()
            self._watchers[number] = (callback, connection.when_unreachable(callback))
        if self._waiters:
            self._wait()
        self.unanswered.leave_link()

    def register(self, addressee: Addressee, on_push: OnPush) -> None:
        """Call `on_push` with what the shard's server pushes to this consumer or member."""
        self._addressees[addressee] = (on_push, [self.connection])
        self.connection.register(addressee, on_push)

    def unregister(self, addressee: Addressee) -> None:
        """Stop calling it."""
        _, told = self._addressees.pop(addressee, (None, ()))
        for connection in told:
            connection.unregister(addressee)

    def _wait(self) -> None:
        connection = self.connection
        unwatch = connection.when_unreachable(self._on_unreachable)
        # Called at once if the client is closing; no call waits then.
        number = 0

        def stop() -> None:
            unwatch()
            connection.forget(number)

        self._stop_waiting = stop
        number = connection.when_connected(self._tell_waiters)
        if self._waiters:
            self._on_waiting()

    def _wait_no_more(self) -> None:
        stop, self._stop_waiting = self._stop_waiting, None
        if stop is not None:
            stop()

    def _tell_waiters(self, result: LinkSession | MagnetarError) -> None:
        self._wait_no_more()
        if isinstance(result, ClusterMismatch):
            # Another cluster's server has the address now: the shard's may have another one.
            self._on_unreachable()
        waiters, self._waiters = self._waiters, {}
        for on_session in waiters.values():
            self.runtime.tell(on_session, result)
