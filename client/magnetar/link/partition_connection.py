"""Requests to the broker that has a partition now, wherever that is."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.link.connection import Connection
from magnetar.link.requests import OnPush, OnSession, Requests
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession
from magnetar_core.errors import ClusterMismatch, MagnetarError


class PartitionConnection(Requests):
    """The connection to the broker of a partition, which its route replaces when it moves.

    Whoever waits for a link then waits for one to the other broker. A link to the broker before is
    of use until it breaks, or that broker refuses.
    """

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        *,
        look_up: Callable[[], None],
        on_unreachable: Callable[[], None],
    ) -> None:
        """The connection to a partition's first known broker.

        Args:
            look_up: called when the broker says that another one has the partition.
            on_unreachable: called whenever an attempt to connect fails while somebody waits.
        """
        super().__init__(runtime)
        self._connection = connection
        self._look_up = look_up
        self._on_unreachable = on_unreachable
        self._waiters: dict[int, OnSession] = {}
        self._waiter_count = 0
        # While somebody waits: ends the waiting at the present connection.
        self._stop_waiting: Callable[[], None] | None = None
        # With the connections that were told: a consumer stays attached through an earlier one.
        self._addressees: dict[tuple[int, int], tuple[OnPush, list[Connection]]] = {}

    @property
    def address(self) -> str:
        """The address of the broker that has the partition now, as far as is known."""
        return self._connection.address

    @property
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""
        return self._connection.live_session

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

    def moved(self) -> bool:
        """Look up who has the partition. Returns True: asking again may reach that broker."""
        self._look_up()
        return True

    def move(self, connection: Connection) -> None:
        """Use the connection to another broker from now on."""
        if connection is self._connection:
            return
        self._wait_no_more()
        self._connection = connection
        for (consumer_id, partition), (on_push, told) in self._addressees.items():
            if connection not in told:
                told.append(connection)
                connection.register(consumer_id, partition, on_push)
        if self._waiters:
            self._wait()

    def register(self, consumer_id: int, partition: int, on_push: OnPush) -> None:
        """Call `on_push` with what the partition's broker pushes to this consumer."""
        self._addressees[consumer_id, partition] = (on_push, [self._connection])
        self._connection.register(consumer_id, partition, on_push)

    def unregister(self, consumer_id: int, partition: int) -> None:
        """Stop calling it."""
        _, told = self._addressees.pop((consumer_id, partition), (None, ()))
        for connection in told:
            connection.unregister(consumer_id, partition)

    def _wait(self) -> None:
        connection = self._connection
        unwatch = connection.when_unreachable(self._on_unreachable)
        # Called at once if the client is closing; nobody waits then.
        number = 0

        def stop() -> None:
            unwatch()
            connection.forget(number)

        self._stop_waiting = stop
        number = connection.when_connected(self._tell_waiters)

    def _wait_no_more(self) -> None:
        stop, self._stop_waiting = self._stop_waiting, None
        if stop is not None:
            stop()

    def _tell_waiters(self, result: LinkSession | MagnetarError) -> None:
        self._wait_no_more()
        if isinstance(result, ClusterMismatch):
            # Another cluster's server has the address now: the broker may have another one.
            self._on_unreachable()
        waiters, self._waiters = self._waiters, {}
        for on_session in waiters.values():
            on_session(result)
