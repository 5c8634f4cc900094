"""Expiry of OPEN transactions, in accumulated run time. Pure.

Source: PIP-31, TC Transaction Expiration.
"""

from __future__ import annotations

import heapq

from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

_STALE_ENTRIES_MIN = 1_024


class ExpiryQueue:
    """Deadlines of OPEN transactions: a heap that drops outdated entries when they surface.

    A transaction that ends costs a single dictionary operation here; the heap is rebuilt when more
    than half of it is outdated.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TxnID, int] = {}
        self._heap: list[tuple[int, TxnID]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, txn_id: TxnID, deadline_run_time_ms: int) -> None:
        """Add a transaction with its deadline."""
        if txn_id in self._deadlines:
            raise BrokenInvariant(f"{txn_id} expires already")
        self._deadlines[txn_id] = deadline_run_time_ms
        heapq.heappush(self._heap, (deadline_run_time_ms, txn_id))

    def remove(self, txn_id: TxnID) -> None:
        """Remove a transaction that is no longer OPEN."""
        del self._deadlines[txn_id]
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_ENTRIES_MIN:
            self._heap = [(deadline, txn_id) for txn_id, deadline in self._deadlines.items()]
            heapq.heapify(self._heap)

    def expired(self, run_time_ms: float, *, count_max: int) -> list[TxnID]:
        """Return transactions whose deadline has come, earliest first. They stay until removed."""
        found: list[tuple[int, TxnID]] = []
        while self._heap and self._heap[0][0] <= run_time_ms and len(found) < count_max:
            entry = heapq.heappop(self._heap)
            if self._deadlines.get(entry[1]) == entry[0]:
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [txn_id for _, txn_id in found]

    def check(self) -> None:
        """Check the queue's invariant."""
        entries = dict.fromkeys(self._heap)
        for txn_id, deadline in self._deadlines.items():
            assert (deadline, txn_id) in entries
