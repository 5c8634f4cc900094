"""The disk's reserve: below a floor, only what finishes or frees something is let through."""

from __future__ import annotations

import logging

from magnetar_core.clock import Clock
from magnetar_core.errors import DiskFull
from magnetar_storage.store import Store

log = logging.getLogger(__name__)

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
        self._looked_at_ms: float | None = None
        self._is_full = False
        self.free_bytes = 0

    def look(self) -> int:
        """The free space, as it was a moment ago.

        The log is told once when it gets short, and once when that is over.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_at_ms is None or now_ms - self._looked_at_ms >= CHECK_INTERVAL_MS:
            self._looked_at_ms = now_ms
            self.free_bytes = self._store.free_bytes()
            self._note(self.free_bytes < self._floor_bytes)
        return self.free_bytes

    def check(self) -> None:
        """Raises DiskFull. Call it before anything is applied."""
        if self.look() < self._floor_bytes:
            raise DiskFull(self._text(), free_bytes=self.free_bytes, floor_bytes=self._floor_bytes)

    def _note(self, is_full: bool) -> None:
        if is_full == self._is_full:
            return
        self._is_full = is_full
        if is_full:
            log.error("the disk is full: %s; until then, what takes room is refused", self._text())
        else:
            log.warning("the disk has room again: %d MiB are free", self.free_bytes >> 20)

    def _text(self) -> str:
        return (
            f"{self.free_bytes >> 20} MiB are free, the reserve is"
            f" {self._floor_bytes >> 20} MiB: free space, or add some"
        )
