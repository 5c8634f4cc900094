"""`magnetar completion`: prints what makes a shell complete commands, options and topics."""

from __future__ import annotations

import os
from pathlib import Path

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the script with which SHELL completes commands, options and topics.

    SHELL is by default that of $SHELL. Put this line into ~/.bashrc or ~/.zshrc:

        eval "$(magnetar completion)"

    and for fish, this line into ~/.config/fish/config.fish:

        magnetar completion fish | source

    Topics are those of the cluster that --broker or MAGNETAR_BROKER names.
    """
    from click.shell_completion import get_completion_class

    from magnetar_cli.program import COMPLETION_VARIABLE, PROGRAM

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(chosen) if chosen in SHELLS else None
    if kind is None:
        raise click.UsageError(f"name the shell: {', '.join(SHELLS)}")
    root = click.get_current_context().find_root().command
    print(kind(root, {}, PROGRAM, COMPLETION_VARIABLE).source())
