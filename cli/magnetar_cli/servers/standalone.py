"""`magnetar standalone`: a broker and a coordinator as two processes on one data directory."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Any

import click

from magnetar_cli.servers.broker import BROKER_PORT
from magnetar_cli.servers.coordinator import COORDINATOR_PORT
from magnetar_cli.servers.options import PORT, server_options

METRICS_PORT = 9650


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The data directory, made if it does not exist.",
)
@click.option("--broker-port", type=PORT, help=f"[default: {BROKER_PORT}]")
@click.option("--coordinator-port", type=PORT, help=f"[default: {COORDINATOR_PORT}]")
@click.option(
    "--metrics-port",
    type=PORT,
    help=f"The broker's port; the coordinator's is the next.  [default: {METRICS_PORT}]",
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="The address that clients on other machines use.  [default: as --host]",
)
@click.option(
    "--port", type=PORT, help="The broker's port; the others follow. 0: the system chooses."
)
@click.option("--no-restart", is_flag=True, help="When a server dies, end with an error.")
@click.option("--supervised", is_flag=True, hidden=True)
@server_options
def standalone(**options: Any) -> None:
    """Run a broker and a coordinator.

    The command prints a line when both are ready. Ctrl-C or SIGTERM stops both.
    """
    from magnetar_cli.servers.supervisor import Supervisor
    from magnetar_core.config import ListenConfig
    from magnetar_core.observability import set_up_logging

    host = options["host"] or "127.0.0.1"
    allow_remote = bool(options["allow_remote"])
    ListenConfig(host=host, allow_remote=allow_remote)
    set_up_logging(level=options["log_level"], log_format=options["log_format"])
    broker_port, coordinator_port, metrics_port, second_metrics_port = _ports(options, host)
    common = ["--host", host, "--log-level", options["log_level"]]
    common += ["--log-format", options["log_format"], "--supervised"]
    if allow_remote:
        common.append("--allow-remote")
    if options["config_file"] is not None:
        common += ["--config", str(options["config_file"])]
    data_dir: Path = options["data_dir"]
    supervisor = Supervisor(
        data_dir=data_dir,
        host=options["advertised_host"] or host,
        broker_port=broker_port,
        coordinator_port=coordinator_port,
        broker_arguments=[
            *("broker", "--name", "broker-0", "--data-dir", str(data_dir / "broker")),
            *("--port", str(broker_port), "--metrics-port", str(metrics_port)),
            *common,
        ],
        coordinator_arguments=[
            *("coordinator", "--name", "coordinator-0"),
            *("--data-dir", str(data_dir / "coordinator-0")),
            *("--port", str(coordinator_port), "--metrics-port", str(second_metrics_port)),
            *common,
        ],
        restart=not options["no_restart"],
        ready_file=options["ready_file"],
        supervised=options["supervised"],
    )
    logging.getLogger("magnetar_cli").debug("supervisor is process %d", os.getpid())
    asyncio.run(supervisor.run())


def _ports(options: dict[str, Any], host: str) -> tuple[int, int, int, int]:
    """Return the ports of broker and coordinator, and of the metrics of each.

    Chosen here and not by the servers: each must know the other's, and keep its own over restarts.
    """
    base: int | None = options["port"]
    anywhere = base == 0
    asked = (options["broker_port"], options["coordinator_port"], options["metrics_port"])
    if base:
        defaults = (base, base + 1, base + 2)
    elif anywhere:
        defaults = (0, 0, 0)
    else:
        # Whoever lets the system choose the broker's port runs several on one machine.
        metrics_port = 0 if options["broker_port"] == 0 else METRICS_PORT
        defaults = (BROKER_PORT, COORDINATOR_PORT, metrics_port)
    chosen = [
        one if one is not None else default for one, default in zip(asked, defaults, strict=True)
    ]
    chosen.append(chosen[2] + 1 if chosen[2] else 0)
    if max(chosen) > 0xFFFF:
        raise click.UsageError("the following ports would exceed 65535; choose a lower port")
    free = iter(_free_ports(host, chosen.count(0)))
    broker, coordinator, metrics, second_metrics = (one or next(free) for one in chosen)
    return broker, coordinator, metrics, second_metrics


def _free_ports(host: str, count: int) -> list[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host.strip("[]"), 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
