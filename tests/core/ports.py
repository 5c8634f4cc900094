"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import Random

FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def first_outgoing() -> int:
    """From this port on, the system gives ports to connections, also while a server is away."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, none of them twice."""
    chance, below = Random(), max(FIRST + 10_000, first_outgoing())
    with ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            port = chance.randrange(FIRST, below)
            try:
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue  # Somebody listens there.
            ports.append(port)
    return ports
