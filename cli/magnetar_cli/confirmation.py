"""A question before what cannot be undone. Only a person at a terminal is asked, never a script."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on.

    Raises:
        click.Abort: the answer is no.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
