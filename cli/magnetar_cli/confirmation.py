"""A question before what cannot be undone. A script answers it beforehand, by --yes."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be lost, and change nothing."
)


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on.

    Raises:
        click.Abort: the answer is no.
        UsageError: no person is there to answer, and --yes was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask at: say --yes for yes")
    click.confirm(question, abort=True, err=True)
