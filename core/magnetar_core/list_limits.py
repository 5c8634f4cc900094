"""How many rows a list command tells at once. Pure.

An answer is made whole in a server's memory, so every list has a limit, and says when it was cut.
"""

from __future__ import annotations

# Where the command names none, and whatever it names.
ROWS_DEFAULT = 1_000
ROWS_MAX = 10_000


def rows_of(limit: int) -> int:
    """The rows that a command may get.

    Args:
        limit: what the command names; 0: nothing.
    """
    return min(limit or ROWS_DEFAULT, ROWS_MAX)
