"""Reserve of free disk space: below a floor, only commands that finish or free something pass."""

from __future__ import annotations

import logging

from magnetar_core.clock import Clock
from magnetar_core.errors import DiskFull
from magnetar_storage.store import Store

log = logging.getLogger(__name__)

CHECK_INTERVAL_MS = 100


class DiskReserve:
    """Checks the free space from time to time, and refuses commands that would use the reserve.

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
        """Return the free space in bytes, as it was a moment ago.

        The log gets a line when space becomes short, and a line when there is room again.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_at_ms is None or now_ms - self._looked_at_ms >= CHECK_INTERVAL_MS:
            self._looked_at_ms = now_ms
            self.free_bytes = self._store.free_bytes()
            self._note(self.free_bytes < self._floor_bytes)
        return self.free_bytes

    def check(self) -> None:
        """Refuse commands that take room while the reserve is in use. Call it before any change.

        Raises:
            DiskFull: the free space is below the floor.
        """
        if self.look() < self._floor_bytes:
            raise DiskFull(self._text(), free_bytes=self.free_bytes, floor_bytes=self._floor_bytes)

    def _note(self, is_full: bool) -> None:
        if is_full == self._is_full:
            return
        self._is_full = is_full
        if is_full:
            log.error(
                "the disk is full: %s; until then, commands that take room are refused",
                self._text(),
            )
        else:
            log.warning("the disk has room again: %d MiB are free", self.free_bytes >> 20)

    def _text(self) -> str:
        return (
            f"{self.free_bytes >> 20} MiB are free, the reserve is"
            f" {self._floor_bytes >> 20} MiB: free space, or add some"
        )
