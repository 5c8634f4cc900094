"""`python -m tests.simulation --short ...` runs short histories; without --short, long ones."""

from __future__ import annotations

import sys

from tests.simulation import run
from tests.simulation.short import command


def main() -> int:
    arguments = sys.argv[1:]
    if "--short" in arguments:
        arguments.remove("--short")
        return command.main(arguments)
    return run.main()


if __name__ == "__main__":
    sys.exit(main())
