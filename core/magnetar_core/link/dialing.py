"""Opens connections: a host's name is resolved, and its addresses are tried one after the other.

asyncio resolves names on threads for which the interpreter waits when it exits, for as long as the
resolver takes. These threads keep no process alive. uvloop tries the addresses of a host only when
those before them have failed, which takes minutes where packets are swallowed (RFC 8305).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from magnetar_core.process.forks import close_in_children
from magnetar_core.transport.waiters import settle

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
# Family and address, as getaddrinfo has them.
Place = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]

# How long an address may take before the next one is tried beside it.
STAGGER_S: Final = 0.25


class NameUnresolved(OSError):
    """The resolver does not know the host's name, or did not answer."""


async def dial(
    make_protocol: Callable[[], ProtocolT],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
) -> ProtocolT:
    """Open a connection.

    Args:
        server_name: with TLS: the name that the server's certificate has to have.
    Raises:
        NameUnresolved: the name of the host has no address.
        OSError: the connection or the TLS handshake failed. This is the error of the first address.
    """
    connection = await _first_connected(await resolve(host, port))
    close_in_children(connection)
    try:
        _, protocol = await asyncio.get_running_loop().create_connection(
            make_protocol,
            sock=connection,
            ssl=tls,
            server_hostname=server_name if tls is not None else None,
        )
    except BaseException:
        connection.close()
        raise
    return protocol


async def resolve(host: str, port: int) -> Sequence[Place]:
    """Return the addresses of a host, in the order in which they are to be tried.

    Raises:
        NameUnresolved: the name of the host has no address.
    """
    try:
        return _look_up(host, port, socket.AI_NUMERICHOST)
    except OSError:
        pass  # It is a name.
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[Place]] = loop.create_future()

    def work() -> None:
        result: Sequence[Place] | OSError
        try:
            result = _look_up(host, port)
        # The codec of international names raises UnicodeError.
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            result = NameUnresolved(f"the name {host!r} cannot be resolved: {reason}")
        try:
            loop.call_soon_threadsafe(settle, found, result)
        except RuntimeError:
            pass  # The loop is closed: no task waits.

    threading.Thread(target=work, name="magnetar resolves", daemon=True).start()
    return await found


def _look_up(host: str, port: int, flags: int = 0) -> Sequence[Place]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    places = [cast(Place, (one[0], one[4])) for one in found]
    # The families take turns, the resolver's first one begins (RFC 8305, 4).
    first = [place for place in places if place[0] is places[0][0]]
    others = [place for place in places if place[0] is not places[0][0]]
    turns: list[Place] = []
    while first or others:
        turns += first[:1] + others[:1]
        del first[:1], others[:1]
    return turns


async def _first_connected(places: Sequence[Place]) -> socket.socket:
    """Return a connection to the first address that takes one."""
    waiting = list(places)
    trying: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException | None = None
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.ensure_future(_connected(waiting.pop(0))))
            done, _ = await asyncio.wait(
                trying,
                timeout=STAGGER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in done:
                trying.remove(one)
                error = one.exception()
                if error is None:
                    return one.result()
                failure = failure or error
    finally:
        for one in trying:
            one.cancel()
            one.add_done_callback(_drop)
    assert failure is not None
    raise failure


async def _connected(place: Place) -> socket.socket:
    family, address = place
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _drop(attempt: asyncio.Task[socket.socket]) -> None:
    """Close a connection that another address was faster than."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
