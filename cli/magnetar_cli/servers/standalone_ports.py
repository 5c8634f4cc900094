"""Ports of a standalone cluster: brokers first, then coordinators, then the metrics of each.

Chosen here and not by the servers: each must know those of the others, and keep its own over
restarts.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from magnetar_cli.servers.broker import BROKER_PORT
from magnetar_cli.servers.coordinator import COORDINATOR_PORT

METRICS_PORT = 9650


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of all servers; `metrics` has those of the brokers first."""

    brokers: list[int]
    coordinators: list[int]
    metrics: list[int]


def choose_ports(options: dict[str, Any], host: str) -> Ports:
    """Return the ports that options ask for; the system chooses where they say 0.

    Raises:
        click.UsageError: a port is too high, or two servers would have the same.
    """
    brokers: int = options["brokers"]
    coordinators: int = options["coordinators"]
    base: int | None = options["port"]
    if base:
        defaults = (base, base + brokers, base + brokers + coordinators)
    elif base == 0:
        defaults = (0, 0, 0)
    else:
        # Whoever lets the system choose the brokers' ports runs several clusters on one machine.
        metrics_port = 0 if options["broker_port"] == 0 else METRICS_PORT
        defaults = (BROKER_PORT, COORDINATOR_PORT + brokers - 1, metrics_port)
    asked = (options["broker_port"], options["coordinator_port"], options["metrics_port"])
    counts = (brokers, coordinators, brokers + coordinators)
    ranges = [
        _range(default if one is None else one, count)
        for one, default, count in zip(asked, defaults, counts, strict=True)
    ]
    given = [port for one in ranges for port in one if port]
    if given and max(given) > 0xFFFF:
        raise click.UsageError("the following ports would exceed 65535; choose a lower port")
    twice = next((port for port in given if given.count(port) > 1), None)
    if twice is not None:
        raise click.UsageError(
            f"two servers would have port {twice}; choose ports that lie farther apart"
        )
    free = free_ports(host, sum(one.count(0) for one in ranges))
    broker_ports, coordinator_ports, metrics_ports = (
        [port or next(free) for port in one] for one in ranges
    )
    return Ports(brokers=broker_ports, coordinators=coordinator_ports, metrics=metrics_ports)


def _range(first: int, count: int) -> list[int]:
    return list(range(first, first + count)) if first else [0] * count


def free_ports(host: str, count: int) -> Iterator[int]:
    """Return ports that nobody listens on, none of them twice."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host.strip("[]"), 0))
        return iter([one.getsockname()[1] for one in sockets])
    finally:
        for one in sockets:
            one.close()
