"""`magnetar cluster up`: a whole cluster on this machine, for experiments."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.servers.broker import BROKER_PORT
from magnetar_cli.servers.console_options import (
    DEFAULT_PORT,
    console_option,
    console_port_option,
    require_console,
    value_arguments,
    value_options,
)
from magnetar_cli.servers.options import LOG_LEVELS, PORT
from magnetar_cli.standard_streams import output_not_needed

if TYPE_CHECKING:
    from magnetar_cli.cluster.local.local_cluster import LocalCluster


@click.command()
@click.option("--brokers", type=click.IntRange(1, 26), default=3, show_default=True)
@click.option("--coordinators", type=click.IntRange(1, 26), default=2, show_default=True)
@click.option(
    "--broker-shards",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="How many shards the brokers share; fixed when the cluster is made.",
)
@click.option(
    "--coordinator-shards",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="How many shards the coordinators share; fixed likewise.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep data and logs here, for another start.  [default: removed at the end]",
)
@click.option("--etcd", metavar="HOST:PORT,...", help="Use this etcd, and start none.")
@click.option(
    "--store",
    metavar="URL",
    help="Use this object store, as s3://BUCKET/PREFIX, and start no server for objects.",
)
@click.option(
    "--port",
    type=PORT,
    default=BROKER_PORT,
    show_default=True,
    help="The first broker's port; those of all others follow. 0: the system chooses.",
)
@click.option(
    "--lease-ms",
    type=click.IntRange(1_000),
    default=3_000,
    show_default=True,
    help="A server that is silent for this long loses its shards; in whole seconds.",
)
@console_option
@console_port_option
@value_options
@click.option("--log-level", type=LOG_LEVELS, default="info", show_default=True)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="When all are ready, write process ids and addresses to this file, as JSON.",
)
def up(
    data_dir: Path | None,
    ready_file: Path | None,
    with_console: bool,
    console_port: int | None,
    schemas: tuple[str, ...],
    framing: str,
    **options: Any,
) -> None:
    """Start a cluster on this machine, for experiments.

    It has etcd, an object server, brokers and coordinators, each a process that writes its log to a
    file. The command shows a table of them. Kill one and see which server takes its shards: it is
    not started again. Ctrl-C stops all. Of the settings in the environment it takes those for TLS,
    tokens and rights.
    """
    from magnetar_cli.cluster.local.local_cluster import LocalCluster, Plan
    from magnetar_cli.cluster.local.outside_server import DidNotStart
    from magnetar_cli.servers.supervisor import ChildFailed

    if with_console:
        require_console()
        if console_port is None:
            console_port = DEFAULT_PORT if options["port"] else 0
    values = value_arguments(schemas, framing, with_console=with_console)
    with _directory(data_dir) as directory:
        plan = Plan(
            directory=directory,
            console_port=console_port if with_console else None,
            console_values=tuple(values),
            **options,
        )
        try:
            asyncio.run(_run(LocalCluster(plan, _tell_end), directory, ready_file))
        except (DidNotStart, ChildFailed) as error:
            raise click.ClickException(str(error)) from None
        finally:
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)


async def _run(cluster: LocalCluster, directory: Path, ready_file: Path | None) -> None:
    from magnetar_cli.servers.interruption import unless_stopped
    from magnetar_cli.servers.ready import write_ready_file

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)

    async def serve() -> None:
        await cluster.start()
        with output_not_needed():
            _show(cluster, directory)
        if ready_file is not None:
            servers = [{**asdict(one), "log": str(one.log)} for one in cluster.running()]
            content = {"servers": servers, "environment": dict(cluster.variables)}
            write_ready_file(ready_file, content)
        await stop.wait()

    try:
        await unless_stopped(serve(), stop)
    finally:
        if stop.is_set():
            click.echo("stopping", err=True)
        await cluster.stop()


def _show(cluster: LocalCluster, directory: Path) -> None:
    from magnetar_cli.cluster.local.local_cluster import ENVIRONMENT_FILE
    from magnetar_cli.output import print_table

    print_table(
        ("SERVER", "PROCESS", "ADDRESS", "METRICS", "LOG"),
        [
            (one.name, one.pid, one.address, one.metrics.removesuffix("/metrics"), one.log.name)
            for one in cluster.running()
        ],
        empty="",
    )
    click.echo(
        f"\nLogs lie in {directory}. Ctrl-C stops all. In another terminal:\n\n"
        f"    . {directory / ENVIRONMENT_FILE}\n"
        "    magnetar cluster shards\n"
        "    magnetar broker --name broker-z --port 0      # one more\n"
    )


def _tell_end(name: str, pid: int, status: int) -> None:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    click.echo(f"{name} (process {pid}) {how}", err=True)


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="magnetar-cluster-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
