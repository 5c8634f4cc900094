"""`magnetar pipeline restore`: writes Parquet files of an offload into a topic."""

from __future__ import annotations

from typing import Any

import click

from magnetar_cli.output import print_facts, print_json
from magnetar_cli.pipeline.running import failures_told, job_options, job_session, spark_needed
from magnetar_cli.progress import JobProgress
from magnetar_cli.types import Duration, json_option


@click.command()
@click.argument("directory")
@click.argument("topic")
@click.option(
    "--transaction-messages",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="How many messages become visible together, at most.",
)
@click.option(
    "--transaction-timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    help="A transaction that takes longer is aborted; servers allow 15m by default.",
)
@click.option("--append", is_flag=True, help="Write behind the messages that the topic has.")
@click.option(
    "--include-unfinished",
    is_flag=True,
    help="Also restore the last transactions, which the offload may have in part.",
)
@job_options
@json_option
def restore(
    servers: tuple[str, ...],
    directory: str,
    topic: str,
    transaction_messages: int,
    transaction_timeout: int,
    append: bool,
    include_unfinished: bool,
    master: str | None,
    as_json: bool,
) -> None:
    """Write the offload in DIRECTORY into TOPIC, exactly once.

    Each message gets into its partition, in its order; whole transactions stay whole. The topic is
    made if it is not there. A run that was killed is finished by the next one, and when more was
    offloaded, that is added.
    """
    with spark_needed():
        from magnetar_spark.jobs.offloading import restore as jobs
    request = jobs.Request(
        *(servers, directory, topic, transaction_messages, transaction_timeout),
        *(append, include_unfinished),
    )
    spark = job_session("restore", master, servers)
    with failures_told(), JobProgress("restored", "offsets") as progress:

        def show(now: Any) -> None:
            progress.show(now.done, now.total, f"{now.transactions:,} transactions")

        report = jobs.restore(spark, request, show)
    if as_json:
        print_json(report)
        return
    print_facts(
        [
            ("directory", report.directory),
            ("topic", f"{report.topic} (id {report.topic_id})"),
            ("new messages", f"{report.messages:,}"),
            ("new transactions", f"{report.transactions:,}"),
            ("of the old ones, split", f"{report.split:,}"),
            ("offsets left for later", f"{report.left_out:,}"),
        ]
    )
