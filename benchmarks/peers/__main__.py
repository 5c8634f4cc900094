"""`python -m benchmarks.peers`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from benchmarks.peers import kafka, magnetar, pulsar
from benchmarks.peers.conversation import ClientFailed
from benchmarks.peers.drive import measure
from benchmarks.peers.fetch import NotFetched, fetch
from benchmarks.peers.figures import Figure, from_json, to_json
from benchmarks.peers.plan import QUICK, Plan
from benchmarks.peers.processes import NotRunning, ended_by_signals
from benchmarks.peers.report import print_table
from benchmarks.peers.rows import ROWS

SYSTEMS = {one.choice: one for one in (*magnetar.SYSTEMS, *kafka.SYSTEMS, *pulsar.SYSTEMS)}


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.option(
    "--only", "rows", type=click.Choice(list(ROWS)), multiple=True, default=list(ROWS),
    help="Measure this row; may be given again.", show_default=False,
)  # fmt: skip
@click.option(
    "--systems", type=click.Choice(list(SYSTEMS)), multiple=True, default=list(SYSTEMS),
    help="Measure this system with this durability; may be given again.", show_default=False,
)  # fmt: skip
@click.option(
    "--repeat", type=click.IntRange(min=1), default=3,
    help="Measure all systems this often, one after the other each time.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3,
    help="Rounds of each client program, which is started once a repetition.",
)  # fmt: skip
@click.option("--seconds", type=float, default=5.0, help="Length of a round.")
@click.option(
    "--warm-up-seconds", type=float, default=10.0,
    help="How long each client works before its first round.",
)  # fmt: skip
@click.option(
    "--at-once", type=int, multiple=True, default=[1, 16, 64, 256],
    help="Transactions at once; may be given again.",
)  # fmt: skip
@click.option(
    "--growth-partitions", type=int, multiple=True, default=[1, 16, 100, 1000],
    help="Partitions of a topic, for the row growth-partitions; may be given again.",
)  # fmt: skip
@click.option(
    "--growth-producers", type=int, multiple=True, default=[1, 4, 16],
    help="Producers at once, for the row growth-producers; may be given again.",
)  # fmt: skip
@click.option(
    "--growth-open", type=click.IntRange(0, 10_000), multiple=True, default=[1, 100, 10_000],
    help="Transactions that stay open, for the row growth-open; may be given again.",
)  # fmt: skip
@click.option(
    "--stream-bytes", type=int, default=200_000_000, help="Payload of each stream that is read."
)
@click.option(
    "--stored-messages", type=int, default=1_000_000,
    help="Messages that are stored before the server is killed.",
)  # fmt: skip
@click.option(
    "--tail-rate", type=int, default=10_000, help="Messages per second of the row tailing."
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Directory below which each system gets its own directory: its disk is measured.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Also write every round to this file.",
)  # fmt: skip
@click.option(
    "--quick", "is_quick", is_flag=True,
    help="Do so little of each row that the figures mean nothing, to see that all of it works; "
    "other options count where they are given.",
)  # fmt: skip
@click.pass_context
def main(
    context: click.Context,
    /,
    rows: tuple[str, ...],
    systems: tuple[str, ...],
    json_file: Path | None,
    is_quick: bool,
    **amounts: Any,
) -> None:
    """Measure Magnetar beside Kafka and Pulsar: the same rows, one system at a time, in turn.

    The first run fetches the peers into .peers/, about 700 MB; it takes Java 17 and Maven. Servers,
    their data and their configuration are removed at the end, also after Ctrl-C.

    The rows:

    \b
      transactions       small ones: 1 KiB to 2 of 8 partitions and an acknowledged input
      produce            messages of 100 B and 1 KiB, a call for many or a call for each
      consume            the same messages, read and acknowledged
      commits            produce in transactions that are committed every 100 ms
      hanging            what others wait for while a transaction stays open
      transform          read, write and acknowledge in one transaction
      tailing            from send to receive at a fixed rate
      growth-partitions  what a message costs with 1 to 1,000 partitions
      growth-producers   what a message costs with 1 to 16 producers
      growth-open        small transactions beside 1 to 10,000 that stay open
      restart            from SIGKILL to the next confirmed message
    """  # noqa: D301 - \b is the character that keeps lines apart
    if context.invoked_subcommand is not None:
        return
    if is_quick:
        defaults = {
            name
            for name in amounts
            if context.get_parameter_source(name) is ParameterSource.DEFAULT
        }
        amounts |= {name: amount for name, amount in QUICK.items() if name in defaults}
    plan = Plan(**amounts)
    figures: list[Figure] = []
    failures: list[ClientFailed] = []
    try:
        with ended_by_signals():
            chosen = [SYSTEMS[name] for name in systems]
            fetch(sorted({one.name for one in chosen} - {"magnetar"}))
            # Closed at once, whatever ends the loop: it holds servers and clients.
            with closing(measure(plan, chosen, rows)) as found:
                for one in found:
                    if isinstance(one, Figure):
                        figures.append(one)
                        if json_file is not None:
                            json_file.write_text(to_json(figures))
                    else:
                        print(one, file=sys.stderr)
                        failures.append(one)
    except (NotFetched, NotRunning) as error:
        raise click.ClickException(str(error)) from error
    finally:
        if figures:
            print_table(figures)
    if failures:
        raise click.ClickException(f"measurements failed: {len(failures)}")


@main.command()
@click.argument("results", type=click.Path(dir_okay=False, exists=True, path_type=Path))
def table(results: Path) -> None:
    """Show RESULTS, what --json wrote, as a table."""
    print_table(from_json(results.read_text()))


@main.command()
@click.argument("results", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--out", "directory", type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmarks/plots/peers"),
)  # fmt: skip
def plot(results: Path, directory: Path) -> None:
    """Draw RESULTS, what --json wrote, as SVG files."""
    # Here, so that measuring needs no matplotlib.
    from benchmarks.peers.pictures import draw_all

    directory.mkdir(parents=True, exist_ok=True)
    for path in draw_all(from_json(results.read_text()), directory):
        print(path)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.peers")
