"""Servers in this process, which clients reach by address without a socket.

`magnetar.testing` has such servers. The SDK knows only of them what is written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from magnetar_core.clock import Clock
from magnetar_core.errors import InvalidArgument, LogUnavailable
from magnetar_core.transport.transport import Transport

# No resolver knows a name that ends so (RFC 2606), so such an address reaches no other server.
SUFFIX = ".magnetar-testing.invalid"


class OpenHere(Protocol):
    """Client on an event loop of this process."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it runs."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether its close has not begun."""
        ...

    async def close(self) -> None:
        """Close it, on its event loop."""
        ...

    def belongs_to_test(self) -> None:
        """Do not warn if it is not closed."""
        ...

    def loop_ends(self) -> None:
        """Give everything up, since nothing runs on the event loop from now on."""
        ...


class OpenBlocking(Protocol):
    """Client for programs without asyncio."""

    def close(self) -> None:
        """Close it."""
        ...


class InProcessServer(Protocol):
    """Cluster in this process."""

    def attach(self) -> tuple[Transport, Clock]:
        """Return the transport and the clock for a client on the running event loop.

        Raises:
            LogUnavailable: it is closed.
            UsedAfterFork: it runs in the parent process.
        """
        ...

    def note_client(self, opened: OpenHere, client: object) -> None:
        """Keep a client on the running event loop until it is closed, at the cluster's end."""
        ...

    def note_blocking(self, opened: OpenHere, client: OpenBlocking) -> None:
        """Keep a blocking client until it is closed, at the cluster's end."""
        ...


# By host, without the name of a member.
_servers: WeakValueDictionary[str, InProcessServer] = WeakValueDictionary()


def register(host: str, server: InProcessServer) -> None:
    """Let clients find a cluster by the end of its addresses."""
    _servers[host] = server


def server_at(addresses: Sequence[str]) -> InProcessServer | None:
    """Return the cluster in this process that addresses name; None: they name others.

    Raises:
        LogUnavailable: no such cluster runs in this process.
        InvalidArgument: some of the addresses are of this process, and others are not.
    """
    hosts = {_host_of(address) for address in addresses}
    if hosts == {None}:
        return None
    if len(hosts) > 1:
        raise InvalidArgument("the addresses name several clusters: give those of one")
    found = _servers.get(hosts.pop() or "")
    if found is None:
        raise LogUnavailable(
            f"{addresses[0]} names a test server of another process, or one that is closed"
        )
    return found


def _host_of(address: str) -> str | None:
    host = address.rpartition(":")[0]
    return host.partition(".")[2] if host.endswith(SUFFIX) else None
