"""Details of transactions that have ended, for people: participants, times, cause, client.

Of a transaction that has ended, the store keeps only the outcome. This module keeps transactions in
memory as they were at their ends: the newest ones, and those that took long. It puts them in order
only when a description is asked for. Nothing of it survives a restart, and no decision uses it.
Pure.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from magnetar_coordinator.constants import CoordinatorConstants
from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.metadata.transaction import Transaction
from magnetar_core.ids import TxnID

# From this duration on, a transaction is kept apart from the many that are short.
SLOW_MS: Final = 1_000
# A transaction with more participants, or with longer counts, is kept apart as well.
FEW_PARTICIPANTS: Final = 8
SHORT_COUNTS_BYTES: Final = 2_048
# About what a participant's counts take: longer ones weigh as much as further participants.
_COUNTS_BYTES_EACH: Final = 256
# Longer counts are not kept.
_COUNTS_BYTES_MAX: Final = 1 << 20


class EndedDetails:
    """Transactions that have ended since the coordinator was started.

    Short and small ones are bounded by their number. Slow and large ones are bounded by their
    number and by their weight: participants, and counts.
    """

    def __init__(self, constants: CoordinatorConstants) -> None:
        self._count_max = constants.ended_details_max
        self._weight_max = constants.ended_participants_max
        # Short and small ones that have ended since the last question, the oldest first.
        self._arrived: deque[Transaction] = deque(maxlen=self._count_max)
        # Short and small ones that had ended at earlier questions, the oldest first.
        self._short: dict[TxnID, Transaction] = {}
        # Slow and large ones, the oldest first.
        self._slow: dict[TxnID, Transaction] = {}
        self._slow_weight = 0
        self._has_dropped = False

    def add(self, transaction: Transaction, outcome: TxnEnded) -> None:
        """Keep a transaction that has just ended."""
        if (
            len(transaction.participants) > FEW_PARTICIPANTS
            or outcome.end_run_time_ms - transaction.start_run_time_ms >= SLOW_MS
            or transaction.selection is not None
            or _counts_bytes(transaction) > SHORT_COUNTS_BYTES
        ):
            self._add_slow(transaction)
        else:
            self._arrived.append(transaction)

    def find(self, txn_id: TxnID) -> Transaction | None:
        """Return a transaction that has ended; None: its details are not kept."""
        arrived = self._arrived
        self._has_dropped |= len(arrived) == self._count_max
        self._short.update((one.txn_id, one) for one in arrived)
        arrived.clear()
        self.forget_old()
        return self._short.get(txn_id) or self._slow.get(txn_id)

    def forget_old(self) -> None:
        """Forget short ones of earlier questions, as far as others have taken their places."""
        excess = min(len(self._short), len(self._short) + len(self._arrived) - self._count_max)
        if excess > 0:
            self._has_dropped = True
            for txn_id in list(islice(self._short, excess)):
                del self._short[txn_id]

    def was_dropped(self, outcome: TxnEnded, *, started_time_ms: int) -> bool:
        """Return whether details that are not kept were there once.

        Args:
            started_time_ms: when the coordinator was started, by the wall clock.
        """
        return self._has_dropped and outcome.end_time_ms >= started_time_ms

    def check(self) -> None:
        """Check the invariants."""
        assert self._slow_weight == sum(map(_weight, self._slow.values()))
        assert self._slow_weight <= self._weight_max

    def _add_slow(self, transaction: Transaction) -> None:
        transaction.selection = None
        if _counts_bytes(transaction) > _COUNTS_BYTES_MAX:
            transaction.counts = None
        self._slow[transaction.txn_id] = transaction
        self._slow_weight += _weight(transaction)
        while len(self._slow) > self._count_max or self._slow_weight > self._weight_max:
            self._has_dropped = True
            self._slow_weight -= _weight(self._slow.pop(next(iter(self._slow))))


def _counts_bytes(transaction: Transaction) -> int:
    return sum(map(len, (transaction.counts or {}).values()))


def _weight(transaction: Transaction) -> int:
    return 1 + len(transaction.participants) + _counts_bytes(transaction) // _COUNTS_BYTES_EACH
