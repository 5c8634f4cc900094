"""The connections of a client: to addresses, and to the present owners of shards.

A shard that changes its owner has an address for each ownership. One connection follows it through
all of them: when a later owner is known, the link to the former one is closed, and nothing of it is
kept.
Source: docs/design/0009-owners.md, Addresses.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator

from magnetar.link.addresses import shard_of
from magnetar.link.connection import Connection
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.members import BROKER, is_earlier
from magnetar.link.owner_watch import OwnerWatch
from magnetar.link.runtime import Runtime
from magnetar.link.shard_connection import ShardConnection

log = logging.getLogger("magnetar")


class Servers:
    """Knows each connection by its address, and each that follows a shard by its number or name."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        ask_members: Callable[[int], Awaitable[object]],
        on_unreachable: Callable[[], None],
    ) -> None:
        """Make a list without servers.

        Args:
            ask_members: asks for the members; told how many questions in a row have not found an
                owner.
            on_unreachable: called when a server that has its shard for good cannot be reached.
        """
        self._runtime = runtime
        self._on_unreachable = on_unreachable
        self._connections: dict[tuple[str, str], Connection] = {}
        self._following: dict[tuple[str, int | str], ShardConnection] = {}
        self._watch = OwnerWatch(
            runtime,
            ask_members,
            is_hunting=lambda: any(shard.is_waited_for for shard in self._shards()),
            is_following=lambda: any(shard.live_session is not None for shard in self._shards()),
        )

    def connection(self, address: str, service: str) -> Connection:
        """Return the connection to a service at an address."""
        found = self._connections.get((address, service))
        if found is None:
            found = self._connections[address, service] = Connection(
                address,
                service,
                self._runtime,
                on_owners_changed=self._watch.heard,
                on_silent=self._watch.silent,
            )
        return found

    def follow(self, service: str, name: int | str, address: str) -> ShardConnection:
        """Return the connection to the owner of a shard.

        Args:
            name: of the server, or its TCID; a broker's shard goes by its number if it has one.
            address: where it was at some time, if nothing later is known.
        """
        key = _key(service, name, address)
        found = self._following.get(key)
        if found is None:
            found = self._following[key] = self._begin(self.connection(address, service))
        return found

    def told(self, service: str, name: int | str, address: str) -> ShardConnection:
        """Note where a shard is, as a server has just told; return the connection to its owner.

        A server may know less than another one did before. So an earlier ownership than the known
        one counts only while the known owner cannot be reached.
        """
        found = self.follow(service, name, address)
        if not is_earlier(address, found.address) or found.connection.is_unreachable:
            self._move(found, service, address)
        if found.shard is not None:
            self._watch.look()
        return found

    def _begin(self, connection: Connection) -> ShardConnection:
        if shard_of(connection.address) is None:
            return ShardConnection(
                self._runtime,
                connection,
                look_up=self._on_unreachable,
                on_unreachable=self._on_unreachable,
            )
        return ShardConnection(
            self._runtime,
            connection,
            look_up=self._watch.lost,
            on_unreachable=self._watch.lost,
            on_waiting=self._watch.waits,
        )

    def _move(self, following: ShardConnection, service: str, address: str) -> None:
        former, latter = following.connection, self.connection(address, service)
        if former is latter:
            return
        log.info("the shard at %s has moved to %s", former.title, latter.title)
        # First the latter: what is under way at the former is sent again when its link closes.
        following.move(latter)
        if shard_of(former.address) is not None:
            self._drop(former, service, "another server has the shard now")

    def drop_idle_but(self, kept: Collection[ConnectionBase]) -> None:
        """Close links to servers that are no longer asked, where shards have owners."""
        if next(self._shards(), None) is None:
            return
        for (address, service), connection in list(self._connections.items()):
            if shard_of(address) is None and connection not in kept and connection.is_idle:
                self._drop(connection, service, "this server is no longer asked")

    def _drop(self, connection: Connection, service: str, reason: str) -> None:
        self._connections.pop((connection.address, service), None)
        connection.give_up(f"{connection.title}: {reason}")

    def _shards(self) -> Iterator[ShardConnection]:
        return (one for one in self._following.values() if one.shard is not None)

    def close(self) -> None:
        """Close all connections."""
        self._watch.close()
        for connection in self._connections.values():
            connection.close()


def _key(service: str, name: int | str, address: str) -> tuple[str, int | str]:
    shard = shard_of(address)
    return (service, name if shard is None or service != BROKER else shard.place.shard)
