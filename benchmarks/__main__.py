"""`python -m benchmarks`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.plan import WITHOUT_TLS, WORKLOADS, Plan
from benchmarks.results import from_json, print_table, to_json
from benchmarks.runner import run
from benchmarks.workloads import measure


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.option(
    "--workload", "workloads", type=click.Choice([*WORKLOADS, "all"]), multiple=True,
    default=["transactions"], help="May be given again.",
)  # fmt: skip
@click.option("--at-once", type=int, multiple=True, default=[1, 16, 64, 256])
@click.option("--seconds", type=float, default=5.0, help="For each measurement of that kind.")
@click.option("--transaction-message-bytes", type=click.IntRange(min=8), default=1024)
@click.option("--transaction-partitions", type=int, default=2, help="Each gets one message.")
@click.option("--transaction-inputs", type=int, default=1, help="Messages that each acknowledges.")
@click.option(
    "--lazy/--eager", default=True,
    help="Begin with the first sends, their partitions named in NewTxn, or before them.",
)  # fmt: skip
@click.option(
    "--await-sends", is_flag=True,
    help="Wait for the messages and acks before EndTxn, and measure EndTxn alone.",
)  # fmt: skip
@click.option(
    "--beside-open", type=int, default=0,
    help="Messages of a transaction that stays open in the same partitions.",
)  # fmt: skip
@click.option("--topic-partitions", type=int, default=8)
@click.option("--message-bytes", type=click.IntRange(min=8), multiple=True, default=[100, 1024])
@click.option("--tail-rate", type=int, default=20_000, help="Messages/s for a tailing consumer.")
@click.option("--entries", type=int, multiple=True, default=[1_000, 10_000, 100_000])
@click.option("--open-transactions", type=int, default=10_000)
@click.option("--stream-bytes", type=int, default=200_000_000, help="Payload of each stream.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The servers' data directory is made there.",
)  # fmt: skip
@click.option(
    "--store", metavar="URL",
    help="Keep the servers' rows in an object store, as s3://BUCKET/PREFIX.",
)  # fmt: skip
@click.option("--tls", "with_tls", is_flag=True, help="Use TLS for all connections.")
@click.option(
    "--ceiling", "with_ceiling", is_flag=True,
    help="Measure the bare conversation, stream and store beside it.",
)  # fmt: skip
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1,
    help="All measurements so often, in turn; the table shows medians (least-greatest).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="With every repetition.")
def main(workloads: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure a broker, a coordinator and one client, each a process of its own, on loopback.

    Without options: the canonical workload, small transactions, every step durable.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    plan = Plan(workloads=WORKLOADS if "all" in workloads else workloads, **options)
    without = [one for one in plan.workloads if one in WITHOUT_TLS]
    if plan.with_tls and without:
        raise click.UsageError(f"--tls: not for {', '.join(without)}")
    results = run(measure(plan))
    if as_json:
        print(to_json(results))
    else:
        print_table(results)


@main.command()
@click.argument("results", type=click.Path(dir_okay=False, exists=True, path_type=Path))
def table(results: Path) -> None:
    """Show RESULTS, what --json printed, as a table."""
    print_table(from_json(results.read_text()))


@main.command()
@click.argument("results", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--out", "directory", type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmarks/plots"),
)  # fmt: skip
def plot(results: Path, directory: Path) -> None:
    """Draw RESULTS, what --json printed, as SVG files."""
    # Here, so that measuring needs no matplotlib.
    from benchmarks.plots import draw_all

    directory.mkdir(parents=True, exist_ok=True)
    for path in draw_all(from_json(results.read_text()), directory):
        print(path)


main(prog_name="python -m benchmarks")
