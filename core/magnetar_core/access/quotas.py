"""Quotas of principals: how much each may use, over all its connections to a server. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

# Principals whose rates are remembered; those that rest are forgotten first.
RATES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits for each principal, at each server (with shards: at each shard). 0: none.

    Attributes:
        open_txns_max: open transactions at a coordinator, also those whose connections have ended.
        open_txn_bytes_max: bytes of open transactions at a broker, likewise.
        requests_per_second: commands; those that finish what was begun are never refused. As many
            may come at once, after a second of rest.
        connections_max: conversations.
    """

    open_txns_max: int = 0
    open_txn_bytes_max: int = 0
    requests_per_second: int = 0
    connections_max: int = 0


class Rates:
    """Token buckets: a bucket of each key holds a second's worth, and fills at its rate."""

    def __init__(self) -> None:
        # By key: what is left, and when that was so. The last used comes last.
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable, per_second: int, now_ms: float) -> bool:
        """Take one from a bucket; return whether there was one."""
        left, at_ms = self._filled(key, per_second, now_ms)
        is_taken = left >= 1
        self._left[key] = (left - 1 if is_taken else left, at_ms)
        return is_taken

    def spend(self, key: Hashable, per_second: int, now_ms: float) -> float:
        """Take a request from a bucket, on credit if it is empty.

        Returns:
            Milliseconds until the credit is repaid.
        """
        left, at_ms = self._filled(key, per_second, now_ms)
        self._left[key] = (left - 1, at_ms)
        return max(0.0, 1 - left) * 1_000 / per_second

    def _filled(self, key: Hashable, per_second: int, now_ms: float) -> tuple[float, float]:
        """Take a bucket out, with what has come into it; return that, and when it was so."""
        left, at_ms = self._left.pop(key, (float(per_second), now_ms))
        left = min(float(per_second), left + max(0.0, now_ms - at_ms) * per_second / 1_000)
        if len(self._left) >= RATES_MAX:
            del self._left[next(iter(self._left))]
        return left, max(at_ms, now_ms)

    def __len__(self) -> int:
        return len(self._left)


class Counts:
    """Counts of the conversations, or of the open transactions, of each key."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def of(self, key: Hashable) -> int:
        """Return how many there are."""
        return self._counts.get(key, 0)

    def begin(self, key: Hashable) -> Callable[[], None]:
        """Count one more. The returned function takes it from the count, once."""
        self._counts[key] = self.of(key) + 1
        is_counted = True

        def end() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                left = self._counts[key] - 1
                if left:
                    self._counts[key] = left
                else:
                    del self._counts[key]

        return end

    def __len__(self) -> int:
        """Return how many keys have any."""
        return len(self._counts)
