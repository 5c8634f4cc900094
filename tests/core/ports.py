"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

from magnetar_cli.servers import standalone_ports


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, none of them twice."""
    return list(standalone_ports.free_ports("127.0.0.1", count))
