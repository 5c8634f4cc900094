"""Background work of RocksDB: when it lets go of its logs, and when it must pause.

A compaction that meets a damaged block fails, and RocksDB repeats it a second later, for ever. So
after a failure all compactions rest for a while: rows are still written and read, from more files.

When the write-ahead logs reach their limit, RocksDB flushes only the families that hold the oldest
log. Families that fill at different rates drift apart, until each log is held by some family: after
an hour of small transactions the logs took their whole limit at all times. So all families are
flushed together a little earlier, and all logs but the newest go.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import rocksdict

from magnetar_storage.data_dir.store_files import logs_bytes
from magnetar_storage.rocksdb.options import LOGS_BYTES_HELD_MAX

log = logging.getLogger(__name__)

LOOK_INTERVAL_SECONDS: Final = 1.0
REST_SECONDS: Final = 600.0
# A log goes when the flushes have ended, and is not asked for again meanwhile.
RELEASE_INTERVAL_SECONDS: Final = 10.0
_ERRORS: Final = "rocksdb.background-errors"
# RocksDB slows writes down, or stops them, when compactions fall behind. While they rest, it must
# not.
_RESTING: Final = {
    "disable_auto_compactions": "true",
    "level0_slowdown_writes_trigger": "1000000",
    "level0_stop_writes_trigger": "1000000",
}
_WORKING: Final = {"disable_auto_compactions": "false"}
_FLUSHING: Final = "rocksdb.num-immutable-mem-table"


class Background:
    """Looks after an open store. All calls run on the store's worker thread.

    Attributes:
        error_count: background work that failed since the store was opened.
    """

    def __init__(
        self,
        database: rocksdict.Rdict,
        families: Sequence[rocksdict.Rdict],
        *,
        flushes: bool = True,
    ) -> None:
        """Begin to look after a store.

        Args:
            families: all that are in use.
            flushes: whether families are flushed here; else the store does it.
        """
        self.error_count = 0
        self._database = database
        self._families = list(families)
        self._resting_until: float | None = None
        self._next_look = 0.0
        self._next_release = 0.0
        self._flushes = flushes

    def look(self, now_seconds: float) -> None:
        """Check all families, from time to time."""
        if now_seconds < self._next_look:
            return
        self._next_look = now_seconds + LOOK_INTERVAL_SECONDS
        self._look_at_errors(now_seconds)
        if self._flushes:
            self._look_at_logs(now_seconds)

    def close(self) -> None:
        """Drop the references to the families: RocksDB is closed without references."""
        self._families.clear()

    def _look_at_errors(self, now_seconds: float) -> None:
        count = self._database.property_int_value(_ERRORS) or 0
        if count > self.error_count:
            self.error_count = count
            if self._resting_until is None:
                log.error(
                    "a compaction or a flush failed in %s, which RocksDB's LOG there explains:"
                    " compactions rest for %d s; rows are still read and written",
                    self._database.path(),
                    REST_SECONDS,
                )
                self._set(_RESTING)
            self._resting_until = now_seconds + REST_SECONDS
        elif self._resting_until is not None and now_seconds >= self._resting_until:
            self._resting_until = None
            self._set(_WORKING)

    def _set(self, options: dict[str, str]) -> None:
        for rows in self._families:
            rows.set_options(options)

    def _look_at_logs(self, now_seconds: float) -> None:
        if now_seconds < self._next_release:
            return
        if logs_bytes(self._database.path()) < LOGS_BYTES_HELD_MAX:
            return
        self._next_release = now_seconds + RELEASE_INTERVAL_SECONDS
        for rows in self._families:
            # A family with two memtables to flush would wait for the first of them, and syncs
            # would wait with it.
            if not rows.property_int_value(_FLUSHING):
                # `_look_at_errors` finds a flush that failed.
                with suppress(Exception):
                    rows.flush(False)
