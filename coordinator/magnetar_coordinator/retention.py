"""Retention of outcomes: old outcomes, and outcomes beyond the limit, are forgotten.

Outcomes are checked in the order of their TxnIDs, the oldest first, in portions. A portion full of
transactions that stayed open for very long can delay the removal of later ones.
"""

from __future__ import annotations

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata_store import TransactionMetadataStore

# Portions in a row, before the removal rests until the next call.
_PORTIONS_MAX = 20


class OutcomeRetention:
    """Retention of a coordinator's outcomes."""

    def __init__(self, metadata: TransactionMetadataStore, config: CoordinatorConfig) -> None:
        self._metadata = metadata
        self._config = config
        # Until this run time no outcome is old enough, and nothing is read.
        self._due_run_time_ms = 0

    async def remove(self, run_time_ms: int) -> int:
        """Remove old outcomes, in a few portions. Returns how many were removed.

        Raises:
            RowsUnreadable: outcomes cannot be read; earlier ones may be removed.
        """
        excess = self._metadata.outcome_count - self._config.outcomes_max
        if excess <= 0 and run_time_ms < self._due_run_time_ms:
            return 0
        removed = 0
        for _ in range(_PORTIONS_MAX):
            scanned_now, removed_now = await self._remove_portion(run_time_ms)
            removed += removed_now
            if removed_now == 0 or scanned_now < self._config.constants.outcome_removal_rows:
                break
        else:
            self._due_run_time_ms = 0
        return removed

    async def _remove_portion(self, run_time_ms: int) -> tuple[int, int]:
        metadata = self._metadata
        start = metadata.first_outcome_key
        rows = await metadata.outcomes(start, rows_max=self._config.constants.outcome_removal_rows)
        old_run_time_ms = run_time_ms - self._config.outcome_retention_ms
        excess = metadata.outcome_count - self._config.outcomes_max
        removed: list[bytes] = []
        first_kept = b""
        oldest_kept_ms = run_time_ms
        for key, outcome in rows:
            if len(removed) < excess or outcome.end_run_time_ms <= old_run_time_ms:
                removed.append(key)
                continue
            first_kept = first_kept or key
            oldest_kept_ms = min(oldest_kept_ms, outcome.end_run_time_ms)
        self._due_run_time_ms = oldest_kept_ms + self._config.outcome_retention_ms
        # Unless an earlier transaction ended while we read.
        if rows and metadata.first_outcome_key == start:
            metadata.first_outcome_key = first_kept or rows[-1][0] + b"\x00"
        if removed:
            await metadata.forget_outcomes(removed)
        return len(rows), len(removed)
