"""`magnetar pipeline audit`: looks for lost, doubled and torn messages."""

from __future__ import annotations

import click

from magnetar_cli.output import print_facts, print_json, print_table
from magnetar_cli.pipeline.running import (
    at_option,
    failures_told,
    job_options,
    job_session,
    spark_needed,
)
from magnetar_cli.pipeline.steps import Steps
from magnetar_cli.types import Duration, json_option

# Of an audit that found something: scripts tell it from success and from failure.
FINDINGS_STATUS = 3

_TOTALS = ("topics", "partitions", "messages", "transactions")


@click.command()
@click.argument("topics", nargs=-1)
@click.option(
    "--unique",
    metavar="EXPRESSION",
    help="A Spark SQL expression, such as key or get_json_object(cast(value as string), '$.id'), "
    "that"
    " no two messages of a topic may share. Nulls are ignored.",
)
@click.option(
    "--min-open",
    type=Duration(),
    default="10s",
    show_default=True,
    help="Orphans: only transactions that are open for this long, such as 15m.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="How many findings of each kind to print; all are counted.",
)
@at_option
@job_options
@json_option
def audit(
    servers: tuple[str, ...],
    topics: tuple[str, ...],
    unique: str | None,
    min_open: int,
    limit: int,
    at: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Look for duplicates, gaps, torn transactions and orphans.

    Reads TOPICS, or all there are, to the ends that they have now, or with --at to those of a cut.
    Exit status: 0 when nothing was found, 3 when something was.
    """
    with spark_needed():
        from magnetar_spark.jobs.auditing import audit as jobs
    request = jobs.Request(servers, topics, unique, min_open, limit, at)
    spark = job_session("audit", master, servers)
    with failures_told(), Steps(lambda: jobs.tasks_done(spark)) as steps:
        report = jobs.audit(spark, request, steps.begin)
    if as_json:
        print_json(report)
    else:
        print_facts(
            [
                *((name, f"{getattr(report, name):,}") for name in _TOTALS),
                *((f"{name} findings", f"{count:,}") for name, count in report.counts.items()),
                *([("cut", report.cut)] if report.cut else []),
            ]
        )
        if report.findings:
            print_table(
                ("KIND", "TOPIC", "PARTITION", "OFFSETS", "TRANSACTION", "WHAT"),
                [
                    (
                        *(finding.kind, finding.topic, finding.partition),
                        _offsets(finding.first_offset, finding.last_offset),
                        finding.txn_id,
                        finding.detail,
                    )
                    for finding in report.findings
                ],
                empty="",
            )
    if not report.is_clean:
        raise click.exceptions.Exit(FINDINGS_STATUS)


def _offsets(first: int | None, last: int | None) -> str:
    if first is None:
        return "-"
    return str(first) if last in (None, first) else f"{first} to {last}"
