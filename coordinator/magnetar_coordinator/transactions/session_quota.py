"""Quota of OPEN transactions per conversation, including those of earlier conversations."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_coordinator.metadata.records import StatusChanged
from magnetar_coordinator.metadata.transaction import Transaction, TransactionClient
from magnetar_coordinator.transactions.causes import host_of
from magnetar_core.errors import QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession, Reply


class _Begun:
    """OPEN transactions of a conversation, or of a machine's unary calls and past conversations."""

    __slots__ = ("_quota", "client", "origin", "session", "txn_ids")

    def __init__(self, quota: SessionQuota, origin: str, session: CommandSession | None) -> None:
        self._quota = quota
        self.origin = origin
        self.session = session
        name = "" if session is None else session.client_name
        self.client = TransactionClient(name, host_of(origin), is_connected=session is not None)
        # The values have no meaning.
        self.txn_ids: dict[TxnID, None] = {}

    # SessionListener.

    def session_writable(self, writable: bool) -> None: ...

    def session_closed(self) -> None:
        self.client.is_connected = False
        self._quota.leave(self)


class SessionQuota:
    """Counts the transactions that a conversation has begun, until their outcome is fixed.

    When a conversation ends, its open transactions count for the client's machine until they
    expire. Transactions of unary calls count there too, so a client that reconnects does not start
    from nothing.

    Args:
        on_left: called with each open transaction of a conversation that ends.
    """

    def __init__(self, open_max: int, on_left: Callable[[TxnID], None]) -> None:
        self._open_max = open_max
        self._on_left = on_left
        # Conversations that go on and have begun a transaction.
        self._open: dict[CommandSession, _Begun] = {}
        # By machine; no entry is empty.
        self._left: dict[str, _Begun] = {}
        # Where each transaction counts.
        self.followed: dict[TxnID, _Begun] = {}

    def check(self, reply: Reply) -> None:
        """Check that a client may begin another transaction.

        Raises:
            QuotaExceeded: the client has begun too many.
        """
        own = self._open.get(reply.session) if reply.session is not None else None
        left = self._left.get(reply.origin)
        count = (len(own.txn_ids) if own else 0) + (len(left.txn_ids) if left else 0)
        if count >= self._open_max:
            raise QuotaExceeded(
                f"this client's machine has {count} transactions open: end"
                " some, wait until they expire, or raise session_open_txns_max",
                session_open_txns_max=self._open_max,
            )

    def begun(self, reply: Reply, transaction: Transaction) -> None:
        """Count a new transaction, and note in it whose it is."""
        session = reply.session
        if session is None or session.closed:
            begun = self._left_of(reply.origin)
        elif (own := self._open.get(session)) is not None:
            begun = own
        else:
            begun = _Begun(self, reply.origin, session)
            self._open[session] = begun
            session.listen(begun)
        transaction.client = begun.client
        txn_id = transaction.txn_id
        begun.txn_ids[txn_id] = None
        self.followed[txn_id] = begun

    def leave(self, begun: _Begun) -> None:
        """Move the transactions of an ended conversation to the machine."""
        assert begun.session is not None
        del self._open[begun.session]
        if begun.txn_ids:
            left = self._left_of(begun.origin)
            left.txn_ids.update(begun.txn_ids)
            for txn_id in begun.txn_ids:
                self.followed[txn_id] = left
                self._on_left(txn_id)

    def fixed(self, record: StatusChanged, *, run_time_ms: int) -> None:
        """Remove a transaction from the count: its outcome is fixed."""
        begun = self.followed.pop(record.txn_id)
        del begun.txn_ids[record.txn_id]
        if begun.session is None and not begun.txn_ids:
            del self._left[begun.origin]

    def _left_of(self, origin: str) -> _Begun:
        left = self._left.get(origin)
        if left is None:
            left = self._left[origin] = _Begun(self, origin, None)
        return left
