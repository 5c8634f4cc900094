"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, none of them twice."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
