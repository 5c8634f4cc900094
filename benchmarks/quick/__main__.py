"""`python -m benchmarks.quick`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.peers.processes import ended_by_signals
from benchmarks.quick.child import ChildFailed
from benchmarks.quick.circumstances import figures_of
from benchmarks.quick.compare import (
    LIMIT,
    ROUNDS_MIN,
    Verdict,
    compared,
    no_longer_measured,
)
from benchmarks.quick.figures import Measured
from benchmarks.quick.kept import Figures, Unusable, from_json, to_json
from benchmarks.quick.profiles import profile
from benchmarks.quick.report import plain, print_comparison
from benchmarks.quick.round import run_round
from benchmarks.quick.work import WORKLOADS
from magnetar_cli.progress import JobProgress

KEPT = Path(__file__).with_name("kept.json")
SLOWER_STATUS = 1


class CannotCompare(click.ClickException):
    """Nothing was found out. Its status is another one than that of a workload that is slower."""

    exit_code = 2


LISTED = "\n".join(f"  {name:17}{workload.about}" for name, workload in WORKLOADS.items())


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"\b\nWorkloads:\n{LISTED}",
)
@click.option(
    "--only", "names", type=click.Choice(list(WORKLOADS)), multiple=True, default=list(WORKLOADS),
    metavar="WORKLOAD", help="Do this workload; may be given again.", show_default=False,
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5,
    help=f"Of all workloads, one after the other; a verdict takes {ROUNDS_MIN}.",
)  # fmt: skip
@click.option(
    "--limit-percent", type=click.FloatRange(min=0), default=LIMIT * 100,
    help="By how much a median has to differ from the kept one.",
)  # fmt: skip
@click.option(
    "--kept", "kept_file", type=click.Path(dir_okay=False, path_type=Path), default=KEPT,
    help="The file of the kept figures.", show_default="benchmarks/quick/kept.json",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Write this run's figures to that file.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option(
    "--profile", "profiles", type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Compare nothing: record there where each process's time goes, with a page of the top.",
)  # fmt: skip
@click.option(
    "--share", type=click.FloatRange(min=0, min_open=True), default=1.0,
    help="Of the amount of work. Figures of another amount have no verdict, and are not kept; "
    "a profile takes ten times the work.",
)  # fmt: skip
@click.option(
    "--data-dir", type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The servers' data directories are made there.",
)  # fmt: skip
@click.pass_context
def main(
    context: click.Context,
    /,
    names: tuple[str, ...],
    rounds: int,
    limit_percent: float,
    kept_file: Path,
    keep: bool,
    as_json: bool,
    profiles: Path | None,
    share: float,
    data_dir: Path | None,
) -> None:
    """Say what a change did to the costs of the main workloads, in a minute.

    Prints each process's processor time for each message or transaction, and ratios between
    workloads, beside the kept figures. The status is 1 if something is slower.

    On the machine at hand, before and after a change:

    \b
      python -m benchmarks.quick --kept before.json --keep
      python -m benchmarks.quick --kept before.json
    """  # noqa: D301 - \b is the character that keeps lines apart
    names = tuple(name for name in WORKLOADS if name in names)
    if profiles is not None:
        if keep:
            raise click.UsageError("--profile compares nothing, and --keep keeps figures")
        try:
            with ended_by_signals():
                print(profile(names, profiles, share=share, data_dir=data_dir))
        except ChildFailed as error:
            raise CannotCompare(str(error)) from error
        return
    if keep and (len(names) < len(WORKLOADS) or rounds < ROUNDS_MIN or share != 1):
        raise click.UsageError(f"--keep takes all workloads, whole, in {ROUNDS_MIN} rounds or more")
    kept = None if keep else _kept(kept_file)
    with ended_by_signals():
        today = figures_of(_rounds(names, rounds, share, data_dir))
    rows = compared(kept, today, limit=limit_percent / 100, is_judged=share == 1)
    notes = _notes(kept, share)
    if kept is None and not keep:
        notes.append("No figures are kept: --keep keeps those of a run.")
    if keep:
        kept_file.write_text(to_json(today))
        notes.append(f"Kept in {kept_file}.")
    if as_json:
        print(json.dumps(plain(kept, today, rows, notes), indent=1))
    else:
        print_comparison(kept, today, rows, notes)
    if any(row.verdict is Verdict.SLOWER for row in rows):
        context.exit(SLOWER_STATUS)


def _kept(file: Path) -> Figures | None:
    """The kept figures; None if there are none."""
    try:
        return from_json(file.read_text())
    except FileNotFoundError:
        return None
    except Unusable as error:
        raise CannotCompare(f"{file} {error}. --keep writes it anew.") from error


def _rounds(
    names: Sequence[str], rounds: int, share: float, data_dir: Path | None
) -> list[list[Measured]]:
    done = 0
    with JobProgress("measured", "workloads") as progress:

        def show(measured: Measured) -> None:
            nonlocal done
            done += 1
            progress.show(done, rounds * len(names), measured.workload)

        try:
            return [
                run_round(names, share=share, data_dir=data_dir, on_measured=show)
                for _ in range(rounds)
            ]
        except ChildFailed as error:
            raise CannotCompare(str(error)) from error


def _notes(kept: Figures | None, share: float) -> list[str]:
    notes = []
    gone = [] if kept is None else no_longer_measured(kept, list(WORKLOADS))
    if gone:
        notes.append(f"Kept, and no longer measured: {', '.join(gone)}.")
    if share != 1:
        notes.append(f"These are figures of {share:g} of the work: nothing is judged.")
    return notes


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.quick")
