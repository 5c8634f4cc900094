"""How many OPEN transactions each conversation has begun."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from magnetar_core.errors import QuotaExceeded
from magnetar_core.ids import TxnID


class SessionQuota:
    """Counts what a conversation begins until its outcome is fixed.

    What it leaves open when it ends counts for nobody: it expires.
    """

    def __init__(self, open_max: int) -> None:
        self._open_max = open_max
        self._open: WeakKeyDictionary[object, dict[TxnID, None]] = WeakKeyDictionary()
        self._beginner: dict[TxnID, dict[TxnID, None]] = {}

    def check(self, session: object | None) -> None:
        """Raises: QuotaExceeded, when it has begun too many. A unary call has no limit."""
        if session is not None and len(self._open.get(session, ())) >= self._open_max:
            raise QuotaExceeded(
                f"this connection has {self._open_max} transactions open: end some, or raise"
                " session_open_txns_max",
                session_open_txns_max=self._open_max,
            )

    def begun(self, session: object | None, txn_id: TxnID) -> None:
        if session is not None:
            mine = self._open.get(session)
            if mine is None:
                mine = self._open[session] = {}
            mine[txn_id] = None
            self._beginner[txn_id] = mine

    def fixed(self, txn_id: TxnID) -> None:
        """Its outcome is fixed: it is OPEN no more."""
        mine = self._beginner.pop(txn_id, None)
        if mine is not None:
            del mine[txn_id]
