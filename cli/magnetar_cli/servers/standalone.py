"""`magnetar standalone`: brokers and coordinators as processes on one data directory."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import click

from magnetar_cli.servers.broker import BROKER_PORT
from magnetar_cli.servers.console_options import (
    console_arguments,
    console_option,
    console_port_option,
    require_console,
    value_arguments,
    value_options,
)
from magnetar_cli.servers.coordinator import COORDINATOR_PORT
from magnetar_cli.servers.options import PORT, server_options
from magnetar_cli.servers.standalone_ports import METRICS_PORT, choose_ports


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The data directory, made if it does not exist.",
)
@click.option(
    "--store",
    metavar="URL",
    envvar="MAGNETAR_STORE",
    help="Keep rows in an object store, as s3://BUCKET/PREFIX, and not in --data-dir.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many brokers share the partitions; later starts may have more, never fewer.",
)
@click.option(
    "--coordinators",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many coordinators share the transactions; later starts may have more, never fewer.",
)
@click.option(
    "--broker-port", type=PORT, help=f"The first broker's port.  [default: {BROKER_PORT}]"
)
@click.option(
    "--coordinator-port",
    type=PORT,
    help=f"The first coordinator's port.  [default: {COORDINATOR_PORT}, behind the brokers]",
)
@click.option(
    "--metrics-port",
    type=PORT,
    help=f"The first broker's port for metrics; the others follow.  [default: {METRICS_PORT}]",
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="The address that clients on other machines use.  [default: as --host]",
)
@click.option(
    "--port", type=PORT, help="The first broker's port; the others follow. 0: the system chooses."
)
@click.option(
    "--kafka-port",
    type=PORT,
    help="Answer Kafka's clients on this port; with several brokers, it is the first one's, and the"
    " others follow.  [default: with one broker 9092, if it is free]",
)
@click.option("--no-kafka", is_flag=True, help="Open no port for Kafka's clients.")
@click.option(
    "--durability",
    type=click.Choice(["synced", "os"]),
    help="Confirm plain messages when they are on the disk, or when the operating system has them."
    "  [default: synced]",
)
@console_option
@console_port_option
@value_options
@click.option("--no-restart", is_flag=True, help="When a server dies, end with an error.")
@click.option("--supervised", is_flag=True, hidden=True)
@server_options
def standalone(**options: Any) -> None:
    """Run brokers and coordinators, one of each unless told otherwise.

    The command prints a line when all are ready. Ctrl-C or SIGTERM stops all.
    """
    from magnetar_cli.servers.standalone_members import (
        broker_directory,
        coordinator_directory,
        standalone_members,
    )
    from magnetar_cli.servers.supervisor import Supervisor
    from magnetar_core.config import ListenConfig
    from magnetar_core.process.observability import set_up_logging
    from magnetar_storage.store_config import StoreConfig

    if options["with_console"]:
        require_console()
    values = value_arguments(
        options["schemas"], options["framing"], with_console=options["with_console"]
    )
    host = options["host"] or "127.0.0.1"
    allow_remote = bool(options["allow_remote"])
    ListenConfig(host=host, allow_remote=allow_remote)
    set_up_logging(level=options["log_level"], log_format=options["log_format"])
    ports = choose_ports(options, host)
    common = ["--host", host, "--log-level", options["log_level"]]
    common += ["--log-format", options["log_format"], "--supervised"]
    if allow_remote:
        common.append("--allow-remote")
    if options["config_file"] is not None:
        common += ["--config", str(options["config_file"])]
    if options["access_file"]:
        common += ["--access-file", options["access_file"]]
    for name in ("traces_endpoint", "traces_sample_ratio", "history_dir"):
        if options[name] is not None:
            common += ["--" + name.replace("_", "-"), str(options[name])]
    store: str | None = options["store"] or None
    if store is not None:
        StoreConfig(store=store)
        common += ["--store", store]
    durability = ["--durability", options["durability"]] if options["durability"] else []
    has_kafka = not options["no_kafka"]
    # Brokers tell each other's ports, so that each of them has to get its own.
    is_fixed = options["kafka_port"] is not None
    # A broker that is alone tells clients where they have reached it.
    is_listed = options["brokers"] > 1 or bool(options["advertised_host"])
    kafka_option = "--kafka-port" if is_fixed else "--kafka-port-if-free"
    data_dir: Path = options["data_dir"]
    members = standalone_members(
        data_dir,
        options["advertised_host"] or host,
        ports.brokers,
        ports.coordinators,
        store=store,
        kafka_ports=ports.kafka if has_kafka and is_fixed and is_listed else (),
    )
    metrics = iter(ports.metrics)

    def arguments(kind: str, name: str, directory: Path, port: int) -> list[str]:
        return [
            *(kind, "--name", name, "--data-dir", str(directory)),
            *("--port", str(port), "--metrics-port", str(next(metrics))),
            *common,
        ]

    supervisor = Supervisor(
        members=members,
        broker_arguments=[
            [
                *arguments("broker", one.name, broker_directory(data_dir, number), port),
                *durability,
                *([kafka_option, str(ports.kafka[number])] if has_kafka else []),
            ]
            for number, (one, port) in enumerate(zip(members.brokers, ports.brokers, strict=True))
        ],
        coordinator_arguments=[
            arguments("coordinator", one.name, coordinator_directory(data_dir, one.tcid), port)
            for one, port in zip(members.coordinators, ports.coordinators, strict=True)
        ],
        console_arguments=console_arguments(
            [one.address for one in members.brokers], ports.console, values
        )
        if options["with_console"]
        else None,
        restart=not options["no_restart"],
        ready_file=options["ready_file"],
        supervised=options["supervised"],
    )
    logging.getLogger("magnetar_cli").debug("supervisor is process %d", os.getpid())
    asyncio.run(supervisor.run())
