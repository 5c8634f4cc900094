"""Quota of OPEN transactions per principal, over all its connections, and over restarts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar_coordinator.metadata.records import StatusChanged
from magnetar_coordinator.metadata.transaction import Transaction, TxnStatus
from magnetar_core.access.grants import Rights
from magnetar_core.access.quotas import Counts
from magnetar_core.errors import QuotaExceeded
from magnetar_core.ids import TxnID


class PrincipalQuota:
    """Counts the OPEN transactions of each principal, until their outcome is fixed."""

    def __init__(self) -> None:
        self._counts = Counts()
        # What ends the counting of each transaction.
        self.followed: dict[TxnID, Callable[[], None]] = {}

    def recover(self, live: Iterable[Transaction]) -> None:
        """Count transactions that were read from the store."""
        for transaction in live:
            if transaction.status is TxnStatus.OPEN:
                self.begun(transaction)

    def check(self, rights: Rights | None) -> None:
        """Check that a principal may begin another transaction.

        Raises:
            QuotaExceeded: it has too many open. No effect.
        """
        if rights is None:
            return
        limit = rights.quotas.open_txns_max
        count = self._counts.of(rights.principal.name)
        if limit and count >= limit:
            raise QuotaExceeded(
                f"{rights.principal} has {count} transactions open: end some, wait until they"
                " expire, or raise open_txns_max in the access file",
                open_txns_max=limit,
            )

    def begun(self, transaction: Transaction) -> None:
        """Count a transaction, if it has a principal."""
        if transaction.principal:
            self.followed[transaction.txn_id] = self._counts.begin(transaction.principal)

    def fixed(self, record: StatusChanged, *, run_time_ms: int) -> None:
        """Remove a transaction from the count: its outcome is fixed."""
        end = self.followed.pop(record.txn_id)
        end()
