"""Forgets outcomes: those that are old enough, and those beyond the number to be kept.

They are looked at in the order of their TxnIDs, from the oldest on, a portion at a time. A portion
full of transactions that stayed open for very long can hold up the removal behind it.
"""

from __future__ import annotations

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata_store import TransactionMetadataStore

# In a row, before it rests until the next call.
_PORTIONS_MAX = 20


class OutcomeRetention:
    """One coordinator's outcomes."""

    def __init__(self, metadata: TransactionMetadataStore, config: CoordinatorConfig) -> None:
        self._metadata = metadata
        self._config = config
        # Until then none is old enough: nothing is read.
        self._due_run_time_ms = 0

    async def remove(self, run_time_ms: int) -> int:
        """Remove what may go, as far as a few portions reach. Returns how many went.

        Raises:
            RowsUnreadable: outcomes cannot be read; those before them may be gone.
        """
        excess = self._metadata.outcome_count - self._config.outcomes_max
        if excess <= 0 and run_time_ms < self._due_run_time_ms:
            return 0
        removed = 0
        for _ in range(_PORTIONS_MAX):
            scanned_now, removed_now = await self._remove_portion(run_time_ms)
            removed += removed_now
            if removed_now == 0 or scanned_now < self._config.outcome_removal_rows:
                break
        else:
            self._due_run_time_ms = 0
        return removed

    async def _remove_portion(self, run_time_ms: int) -> tuple[int, int]:
        metadata = self._metadata
        start = metadata.first_outcome_key
        rows = await metadata.outcomes(start, rows_max=self._config.outcome_removal_rows)
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
