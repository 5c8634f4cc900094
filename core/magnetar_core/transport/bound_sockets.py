"""Sockets of a TCP port, for all addresses of a host."""

from __future__ import annotations

import asyncio
import socket


async def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host, with one port.

    asyncio would give each address a port of its own, and "::" no IPv4, unlike gRPC. A further
    address that is not one of this machine is left out: clients reach the first one.

    Args:
        port: 0: the operating system chooses.
    Raises:
        OSError: the port is taken, or the address is not one of this machine.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM
    )
    sockets: list[socket.socket] = []
    for family, address in dict.fromkeys((one[0], str(one[4][0])) for one in found):
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
