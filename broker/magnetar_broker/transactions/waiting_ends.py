"""Commits that wait for other transactions (rule k), and the requests for them.

A coordinator repeats its request until it is answered: days, if an administrator has to accept a
loss. So that copies do not pile up, the newest copy replaces those with the same request id: a
single answer serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from magnetar_broker.transactions.transaction_index import End
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession


class AskedEnd(NamedTuple):
    """An end, and the conversation that asked for it; None: a unary call, or this broker itself."""

    end: End
    session: CommandSession | None
    request_id: int
    done: Callable[[], None]
    failed: Callable[[Exception], None]


class WaitingEnds:
    """Waiting commits of a partition, by transaction."""

    def __init__(self) -> None:
        self._asked: dict[TxnID, list[AskedEnd]] = {}

    def of(self, txn_id: TxnID) -> list[AskedEnd]:
        """Return the waiting requests to end this transaction, the newest last."""
        return list(self._asked.get(txn_id, ()))

    def add(self, asked: AskedEnd) -> bool:
        """Keep a request; return whether it is the first for its transaction."""
        txn_id = asked.end.txn_id
        others = self._asked.get(txn_id, ())
        self._asked[txn_id] = [one for one in others if not _is_superseded(one, asked)] + [asked]
        return not others

    def take(self, txn_id: TxnID) -> list[AskedEnd]:
        """Remove and return the requests to end this transaction; none, if all were taken."""
        return self._asked.pop(txn_id, [])

    def take_all(self, tcid: int | None = None) -> list[AskedEnd]:
        """Remove and return all requests, or those for the transactions of a coordinator."""
        ids = [one for one in self._asked if tcid is None or one.tcid == tcid]
        return [asked for txn_id in ids for asked in self.take(txn_id)]


def _is_superseded(earlier: AskedEnd, asked: AskedEnd) -> bool:
    """Return whether no caller waits for an answer to the earlier request alone."""
    session = earlier.session
    if session is None:
        return False
    is_copy = session is asked.session and earlier.request_id == asked.request_id
    return is_copy or session.closed
