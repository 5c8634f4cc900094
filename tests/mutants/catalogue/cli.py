"""Mistakes in the command line."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Put

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "megabytes-of-1024",
        "magnetar_cli.types:_UNITS_BYTES",
        Put("1 << 20", "10 ** 6"),
        "500M is taken for 500 MiB.",
    ),
    Mutant(
        "grown-with-the-same-version",
        "magnetar_cli.servers.standalone_members:_grown",
        Put("known.version", "known.version + 1"),
        "A cluster that has grown cannot be started: its stores saw another list.",
    ),
)
