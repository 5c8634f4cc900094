"""`python -m tests.simulation ...`: see run.py."""

from __future__ import annotations

import sys

from tests.simulation.run import main

if __name__ == "__main__":
    sys.exit(main())
