"""Sockets of a TCP port, for all addresses of a host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable


async def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host, with one port.

    Args:
        port: 0: the operating system chooses.
    Raises:
        OSError: the port is taken, or the address is not one of this machine.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM
    )
    return bind_all(((one[0], str(one[4][0])) for one in found), port)


def bind_all(addresses: Iterable[tuple[int, str]], port: int) -> list[socket.socket]:
    """Return sockets that listen on addresses, with one port.

    asyncio would give each address a port of its own, and "::" no IPv4, unlike gRPC. A further
    address on which the port cannot be had is left out: clients reach the first one.

    Args:
        addresses: families and hosts.
        port: 0: the operating system chooses.
    Raises:
        OSError: the port cannot be had on the first address.
    """
    sockets: list[socket.socket] = []
    for family, address in dict.fromkeys(addresses):
        is_dual = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
        try:
            bound = socket.create_server((address, port), family=family, dualstack_ipv6=is_dual)
        except OSError:
            if not sockets:
                raise
            continue
        port = bound.getsockname()[1]
        sockets.append(bound)
    return sockets
