"""Ports of a standalone cluster: brokers first, then coordinators, metrics of each, the console.

Chosen here and not by the servers: each must know those of the others, and keep its own over
restarts. So none is chosen that the system may give to a connection meanwhile.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

import click

from magnetar_cli.servers.broker import BROKER_PORT
from magnetar_cli.servers.console_options import DEFAULT_PORT as CONSOLE_PORT
from magnetar_cli.servers.coordinator import COORDINATOR_PORT

METRICS_PORT = 9650
KAFKA_PORT = 9092
# Where the system is to choose, the lowest port.
FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of all servers; `metrics` has those of the brokers first.

    Attributes:
        console: the port of the console, if there is one; 0: the system chooses.
        kafka: the ports for Kafka's clients, one for each broker.
    """

    brokers: list[int]
    coordinators: list[int]
    metrics: list[int]
    console: int
    kafka: list[int]


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
        # Users who let the system choose the brokers' ports run several clusters on one machine.
        metrics_port = 0 if options["broker_port"] == 0 else METRICS_PORT
        defaults = (BROKER_PORT, COORDINATOR_PORT + brokers - 1, metrics_port)
    console_port: int | None = options["console_port"]
    if console_port is None:
        console_port = 0 if 0 in (base, options["broker_port"]) else CONSOLE_PORT
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
    is_chosen_by_system = 0 in (base, options["broker_port"])
    kafka_port: int | None = options["kafka_port"]
    if kafka_port is None:
        kafka_port = 0 if is_chosen_by_system else KAFKA_PORT
    kafka = _range(kafka_port, brokers)
    if kafka[-1] > 0xFFFF:
        raise click.UsageError("the ports for Kafka's clients would exceed 65535")
    free = free_ports(host, sum(one.count(0) for one in (*ranges, kafka)))
    broker_ports, coordinator_ports, metrics_ports = (
        [port or next(free) for port in one] for one in ranges
    )
    return Ports(
        brokers=broker_ports,
        coordinators=coordinator_ports,
        metrics=metrics_ports,
        console=console_port,
        kafka=[port or next(free) for port in kafka],
    )


def _range(first: int, count: int) -> list[int]:
    return list(range(first, first + count)) if first else [0] * count


def free_ports(host: str, count: int) -> Iterator[int]:
    """Return ports on which no program listens, none of them twice.

    The system gives none of them to connections: a server may start later, and again.
    """
    chance, below = SystemRandom(), max(FIRST + 10_000, first_outgoing())
    with ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            port = chance.randrange(FIRST, below)
            # Try the previous port as a server would: its last connections may linger.
            one = sockets.enter_context(socket.socket(_family_of(host)))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((host.strip("[]"), port))
                one.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            ports.append(port)
    return iter(ports)


def first_outgoing() -> int:
    """From this port on, the system gives ports to connections, also while a server is away."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
