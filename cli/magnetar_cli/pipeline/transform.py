"""`magnetar pipeline transform`: turns a topic into another by a SQL query."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import click

from magnetar_cli.output import print_facts, print_json
from magnetar_cli.pipeline.payloads import ALL_BAD_STATUS, payload_of_request, payload_options
from magnetar_cli.pipeline.running import failures_told, job_options, job_session, spark_needed
from magnetar_cli.progress import JobProgress
from magnetar_cli.types import Duration, json_option


@click.command()
@click.argument("source", metavar="INPUT")
@click.argument("output")
@payload_options
@click.option(
    "--query",
    metavar="SQL",
    default="SELECT * FROM input",
    show_default=True,
    help="The query that makes output rows of each input row, or @FILE with it.",
)
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIRECTORY",
    help="The directory that keeps the job's progress. A job that is started again with it "
    "continues.",
)
@click.option("--errors", metavar="TOPIC", help="The topic for values that cannot be decoded.")
@click.option(
    "--accept-all-bad",
    is_flag=True,
    help="Go on even if none of the values of the first batch can be decoded.",
)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C, not only to the present end.")
@click.option(
    "--interval",
    type=Duration(),
    default="1s",
    show_default=True,
    help="With --follow: the time between the starts of batches.",
)
@click.option(
    "--starting-offsets",
    metavar="earliest|latest|JSON",
    default="earliest",
    show_default=True,
    help='Where a new checkpoint begins; {"orders": {"0": 23}} for offsets by partition.',
)
@click.option(
    "--offsets-per-batch",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="How many messages one transaction has, about, at most.",
)
@click.option(
    "--transaction-timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    help="A batch that takes longer is aborted; servers allow 15m by default.",
)
@click.option(
    "--accept-loss", is_flag=True, help="Go on without messages that retention has removed."
)
@click.option(
    "--accept-committed",
    is_flag=True,
    help="If the last batch is committed, and comes again with other rows since the query was"
    " changed: leave it as it is.",
)
@job_options
@json_option
def transform(
    servers: tuple[str, ...],
    source: str,
    output: str,
    query: str,
    errors: str | None,
    follow: bool,
    interval: int,
    master: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Turn INPUT into OUTPUT by a SQL query, exactly once.

    The query sees the view `input`: the columns of the values, and `_message`, a struct with key,
    value, headers, topic, partition, offset, timestamp, event_time and txn_id. Its columns are the
    fields of a JSON object, which is the new value. Columns `_key`, `_headers`, `_event_time` and
    `_value` are these parts of the new message; what is not among them stays as it was if the query
    also gives `_message`, as SELECT * does.

    Exit status: 0, 1 when the job failed, 3 when no value that was read could be decoded.
    """
    with spark_needed():
        from magnetar_spark.jobs.transforming import transform as jobs
    request = jobs.Request(
        servers=servers,
        input=source,
        output=output,
        checkpoint=given["checkpoint"],
        **payload_of_request(given),
        sql=_text_of(query),
        error_topic=errors,
        accepts_all_bad=given["accept_all_bad"],
        accepts_loss=given["accept_loss"],
        accepts_committed=given["accept_committed"],
        transaction_timeout_ms=given["transaction_timeout"],
        starting_offsets=given["starting_offsets"],
        offsets_per_batch_max=given["offsets_per_batch"],
        interval_ms=interval if follow else None,
    )
    spark = job_session("transform", master, servers)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # An exception would break a conversation with the JVM in its middle.
        signal.signal(number, lambda *_: stop.set())
    with failures_told(), JobProgress("transformed", "messages") as progress:

        def show(now: Any) -> None:
            progress.show(now.read, now.read + now.behind, f"{now.bad:,} bad" if now.bad else "")

        report = jobs.transform(spark, request, stop=stop, on_batch=show)
    if as_json:
        print_json(report)
    else:
        print_facts(
            [
                ("batches", f"{report.batches:,}"),
                ("messages read", f"{report.read:,}"),
                ("messages written", f"{report.written:,}"),
                (f"bad, to {errors}" if errors else "bad", f"{report.bad:,}"),
            ]
        )
    if stop.is_set() and not follow:
        raise click.Abort
    if report.is_all_bad:
        click.echo(f"no value could be decoded: all are in {errors}", err=True)
        raise click.exceptions.Exit(ALL_BAD_STATUS)


def _text_of(query: str) -> str:
    if not query.startswith("@"):
        return query
    try:
        return Path(query[1:]).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"cannot read {query[1:]}: {error}", param_hint="--query"
        ) from None
