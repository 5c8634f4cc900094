"""The command line: the program `magnetar`, its commands, and what runs servers."""

from __future__ import annotations

import sys

from magnetar_cli import standard_streams
from magnetar_cli.process_end import end_process

# Of the extra `cli`, which the SDK does without.
PACKAGES = ("click", "rich")


def main() -> None:
    """The entry point of the `magnetar` program."""
    standard_streams.prepare()
    try:
        from magnetar_cli.program import cli
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        sys.exit(
            f"Error: no module {error.name}: the command line needs more than the SDK:"
            " pip install 'magnetar[cli]', or 'magnetar[server]' to run servers too"
        )
    try:
        cli(prog_name="magnetar")
    except SystemExit as end:
        end_process(end.code)
