"""`magnetar pipeline offload`: writes a topic to Parquet files."""

from __future__ import annotations

from typing import Any

import click

from magnetar_cli.output import print_facts, print_json, print_table
from magnetar_cli.pipeline.running import (
    at_option,
    failures_told,
    job_options,
    job_session,
    spark_needed,
)
from magnetar_cli.progress import JobProgress
from magnetar_cli.types import json_option


@click.command()
@click.argument("topic")
@click.argument("directory")
@click.option(
    "--rows-per-file",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="How many messages a file has at most.",
)
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4_raw", "none"]),
    default="zstd",
    show_default=True,
)
@click.option(
    "--min-partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Write with at least this number of tasks, each to a separate file.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Leave out what retention removed before it was offloaded, or messages that cannot be "
    "read, and note it in the manifest.",
)
@at_option
@job_options
@json_option
def offload(
    servers: tuple[str, ...],
    topic: str,
    directory: str,
    rows_per_file: int,
    compression: str,
    min_partitions: int,
    accept_loss: bool,
    at: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Write the committed messages of a topic to Parquet.

    DIRECTORY is a path, or any URL that Spark can write. Once more, it adds what is new. A run that
    was killed is finished by the next one. With --at, it goes up to the ends of a cut.
    """
    with spark_needed():
        from magnetar_spark.jobs.offloading import offload as jobs
        from magnetar_spark.jobs.offloading.offload_goal import Request
    request = Request(
        *(servers, topic, directory, rows_per_file, compression, min_partitions, accept_loss),
        at=at,
    )
    spark = job_session("offload", master, servers)
    with failures_told(), JobProgress("offloaded", "offsets") as progress:

        def show(now: Any) -> None:
            progress.show(now.done, now.total, f"{now.files:,} files, {now.byte_count:,} bytes")

        report = jobs.offload(spark, request, show)
    if as_json:
        print_json(report)
        return
    print_facts(
        [
            ("topic", f"{report.topic} (id {report.topic_id})"),
            ("directory", report.directory),
            ("manifest", report.manifest),
            ("messages", f"{report.messages:,}"),
            ("new messages", f"{report.new_messages:,}"),
            ("new files", f"{report.new_files:,}"),
            ("new bytes", f"{report.new_bytes:,}"),
        ]
    )
    names = ("PARTITION", "FROM", "TO", "MESSAGES", "NEW", "NEW FILES", "NEW BYTES", "LOST")
    print_table(
        names,
        [
            (
                *(one.partition, one.first_offset, one.end_offset, one.messages),
                *(one.new_messages, one.new_files, one.new_bytes, one.lost),
            )
            for one in report.partitions
        ],
        empty="no partitions",
    )
