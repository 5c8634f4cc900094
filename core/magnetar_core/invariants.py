"""Error of a broken invariant: something that must never happen. Pure.

`check` methods, which tests and the simulation call, use `assert`. Conditions that must hold while
a server serves do not: `python -O` leaves assertions out, and a server would go on with wrong data.
"""

from __future__ import annotations


class BrokenInvariant(AssertionError):
    """A bug in Magnetar: an invariant does not hold. The command has no effect."""
