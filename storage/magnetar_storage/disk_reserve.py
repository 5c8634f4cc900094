"""The disk's reserve: below a floor, only what finishes or frees something is let through."""

from __future__ import annotations

from magnetar_core.clock import Clock
from magnetar_core.errors import DiskFull
from magnetar_storage.store import Store

CHECK_INTERVAL_MS = 100


class DiskReserve:
    """Looks at the free space now and then, and refuses what would eat the reserve.

    Args:
        floor_bytes: below this much free space, check() refuses.
    """

    def __init__(self, store: Store, clock: Clock, *, floor_bytes: int) -> None:
        self._store = store
        self._clock = clock
        self._floor_bytes = floor_bytes
        self._checked_at_ms: float | None = None
        self.free_bytes = 0

    def check(self) -> None:
        """Raises DiskFull. Call it before anything is applied."""
        now_ms = self._clock.monotonic_ms()
        if self._checked_at_ms is None or now_ms - self._checked_at_ms >= CHECK_INTERVAL_MS:
            self._checked_at_ms = now_ms
            self.free_bytes = self._store.free_bytes()
        if self.free_bytes < self._floor_bytes:
            raise DiskFull(
                f"{self.free_bytes >> 20} MiB are free, the reserve is"
                f" {self._floor_bytes >> 20} MiB: free space, or add some",
                free_bytes=self.free_bytes,
                floor_bytes=self._floor_bytes,
            )
