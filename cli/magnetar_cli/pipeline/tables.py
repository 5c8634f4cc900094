"""`magnetar pipeline tables`: brings Iceberg tables of topics to one moment."""

from __future__ import annotations

from typing import Any

import click

from magnetar_cli.output import print_facts, print_json, print_table
from magnetar_cli.pipeline.payloads import ALL_BAD_STATUS, payload_of_request, payload_options
from magnetar_cli.pipeline.running import (
    at_option,
    failures_told,
    job_options,
    job_session,
    spark_needed,
)
from magnetar_cli.progress import JobProgress
from magnetar_cli.types import Duration, Size, json_option


def _properties(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{one!r} is not NAME=TEXT")
        found[name] = text
    return found


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--warehouse",
    metavar="DIRECTORY",
    help="Keep tables and their catalog in a directory of this machine.",
)
@click.option(
    "--catalog",
    metavar="NAME",
    help="Use this catalog of ~/.pyiceberg.yaml instead.  [default: the one that is `default` "
    "there]",
)
@click.option(
    "--catalog-property",
    "properties",
    metavar="NAME=TEXT",
    multiple=True,
    callback=_properties,
    help="A further property of the catalog, such as type=rest or uri=https://... Passwords are "
    "better in the"
    " file, or in PYICEBERG_CATALOG__NAME__PASSWORD.",
)
@click.option(
    "--namespace",
    default="magnetar",
    show_default=True,
    help="The namespace of the tables, which have the names of their topics.",
)
@payload_options
@click.option(
    "--keep-bad",
    is_flag=True,
    help="Values that cannot be decoded go to a table TOPIC_bad. Without it, the first one ends the"
    " job, unless there is such a table.",
)
@click.option(
    "--accept-all-bad",
    is_flag=True,
    help="Go on even if none of the values of a table's first run can be decoded.",
)
@at_option
@click.option(
    "--file-size",
    type=Size(),
    default="256MiB",
    show_default=True,
    help="How large a file is at most, about. Small ones are written together.",
)
@click.option(
    "--min-partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Write with at least this number of tasks, each to files of its own.",
)
@click.option(
    "--keep-cuts",
    type=Duration(),
    default="7d",
    show_default=True,
    help="For how long the tag of a cut keeps its snapshots, when snapshots are expired.",
)
@job_options
@json_option
def tables(
    servers: tuple[str, ...],
    topics: tuple[str, ...],
    warehouse: str | None,
    catalog: str | None,
    properties: dict[str, str],
    at: str | None,
    master: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Bring an Iceberg table for each TOPIC to one moment over all of them.

    Columns are those of the values, and _partition, _offset, _txn_id, _timestamp, _event_time, _key
    and _headers. Each committed message is a row, once. The next run adds what has come since; one
    that was killed is finished by it. Snapshots at the same cut have the same tag, cut-NUMBER.

    Exit status: 0, 1 when the job failed, 3 when no value that was read could be decoded.
    """
    with spark_needed():
        from magnetar_spark.jobs.iceberg import tables as jobs
        from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice
        from magnetar_spark.options.source import NOW
    request = jobs.Request(
        servers=servers,
        topics=topics,
        **payload_of_request(given),
        catalog=CatalogChoice(catalog, properties, warehouse),
        namespace=given["namespace"],
        at=at or NOW,
        keeps_bad=given["keep_bad"],
        accepts_all_bad=given["accept_all_bad"],
        file_bytes=given["file_size"],
        tasks_min=given["min_partitions"],
        kept_ms=given["keep_cuts"],
    )
    spark = job_session("tables", master, servers)
    with failures_told(), JobProgress("brought to the cut", "topics") as progress:
        report = jobs.tables(spark, request, lambda what, done, of: progress.show(done, of, what))
    if as_json:
        print_json(report)
    else:
        print_facts(
            [
                ("cut", report.tag),
                ("messages read", f"{report.read:,}"),
                ("bad", f"{report.bad:,}"),
            ]
        )
        print_table(
            ("TABLE", "NEW ROWS", "NEW FILES", "JOINED FILES", "SNAPSHOT"),
            [
                (
                    table.table,
                    table.new_rows,
                    table.new_files,
                    table.joined_files,
                    table.snapshot_id or "-",
                )
                for table in report.tables
            ],
            empty="no tables",
        )
    if report.is_all_bad:
        click.echo("no value could be decoded: all are in tables TOPIC_bad", err=True)
        raise click.exceptions.Exit(ALL_BAD_STATUS)
