"""`python -m tests.spec`: see `command`."""

from __future__ import annotations

import sys

from tests.spec.command import main

if __name__ == "__main__":
    sys.exit(main())
