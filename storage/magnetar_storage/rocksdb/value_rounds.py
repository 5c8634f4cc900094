"""Rounds over the files of values: which is examined for garbage, when, and the result. Pure.

Rows are deleted without a look at their values, so it is not known how much of a file is garbage
before it is looked at, value by value. Files are looked at in rounds, from the oldest on, and a
round begins only when rows were deleted since the last one. Retention deletes from the front: such
files are found to be all garbage, and removed. If less than half of a file is alive, its values are
copied to the end of the newest file. So values take at most twice their size, and what was deleted
since.
Source: docs/design/0019-values.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# The share of a file that is alive, below which its values are moved.
MOVED_BELOW_SHARE: Final = 0.5
ROUND_INTERVAL_SECONDS: Final = 60.0
# A round takes at most this share of the time.
ROUNDS_SHARE_MAX: Final = 0.05
# Looking at a value takes some 4 us: a hundredth of a processor.
VALUES_A_SECOND: Final = 2_500
# A millisecond, or less.
VALUES_AT_ONCE_MAX: Final = 200
PAUSE_SECONDS: Final = 0.01


class ValueRounds:
    """Rounds over the files of a store.

    Attributes:
        file: the file that is looked at; None: none is.
    """

    def __init__(self) -> None:
        self.file: int | None = None
        # A process before this one may have left garbage.
        self._has_deleted = True
        self._left: list[int] = []
        self._began_at = 0.0
        self._next_round = 0.0
        self._last_look: float | None = None

    def note_deleted(self) -> None:
        """Note that rows were deleted."""
        self._has_deleted = True

    def values_due(self, now_seconds: float) -> int:
        """Return how many values may be looked at now."""
        if self._last_look is None:
            self._last_look = now_seconds
        since = now_seconds - self._last_look
        if since < PAUSE_SECONDS:
            return 0
        self._last_look = now_seconds
        return min(VALUES_AT_ONCE_MAX, int(since * VALUES_A_SECOND))

    def begin_file(self, now_seconds: float, whole: Iterable[int]) -> int | None:
        """Return the file to look at next; None: there is nothing to do.

        Args:
            whole: files that no longer grow.
        """
        if self._left:
            self.file = self._left.pop(0)
            return self.file
        if not self._has_deleted or now_seconds < self._next_round:
            return None
        self._left = sorted(whole)
        if not self._left:
            return None
        self._has_deleted = False
        self._began_at = now_seconds
        return self.begin_file(now_seconds, ())

    def end_file(self, now_seconds: float) -> None:
        """Note that nothing more is done with the file."""
        self.file = None
        if not self._left:
            lasted = now_seconds - self._began_at
            pause = max(ROUND_INTERVAL_SECONDS, lasted / ROUNDS_SHARE_MAX)
            self._next_round = now_seconds + pause


def is_to_move(live_bytes: int, file_bytes: int) -> bool:
    """Return whether the values of a file that are alive get copies elsewhere."""
    return live_bytes < MOVED_BELOW_SHARE * file_bytes
