"""Limit of the rows in an answer to a list command. Pure.

An answer is built whole in a server's memory, so every list has a limit, and says when it was cut.
"""

from __future__ import annotations

# The limit of a command that names none, and the limit whatever a command names.
ROWS_DEFAULT = 1_000
ROWS_MAX = 10_000


def rows_of(limit: int) -> int:
    """Return how many rows a command may get.

    Args:
        limit: the command's limit; 0: none.
    """
    return min(limit or ROWS_DEFAULT, ROWS_MAX)
