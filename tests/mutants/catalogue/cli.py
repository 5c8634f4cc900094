"""Mistakes in the command line."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TYPES = "cli/magnetar_cli/types.py"
_PROGRAM = "cli/magnetar_cli/program.py"

MUTANTS = (
    Mutant(
        name="megabytes-of-1024",
        file=_TYPES,
        old='"m": 10**6,',
        new='"m": 1 << 20,',
        mistake="500M is taken for 500 MiB.",
    ),
    Mutant(
        name="every-command-imported-at-once",
        file=_PROGRAM,
        old="import click\n",
        new="import click\nimport magnetar_cli.servers.server_process\n",
        mistake="To show help, all that a server needs is imported.",
    ),
)
