"""What must never happen, and the error that says it has. Pure.

`check` methods, which tests and the simulation call, use `assert`. What must hold while a server
serves does not: `python -O` leaves assertions out, and a server would go on with what is wrong.
"""

from __future__ import annotations


class BrokenInvariant(AssertionError):
    """Magnetar's own fault: something is as it can never be. What was asked for is not done."""
