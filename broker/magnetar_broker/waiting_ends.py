"""Commits that wait for other transactions (rule k), and who asked for them.

A coordinator asks again until it is answered, for as long as what is awaited takes: days, if an
administrator has to accept a loss. So that its copies do not pile up, the newest takes the place of
those with the same request id: one answer serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from magnetar_broker.transaction_index import End
from magnetar_core.commands import CommandSession
from magnetar_core.ids import TxnID


class AskedEnd(NamedTuple):
    """An end, and who asked for it; no session: a unary call, or this broker itself."""

    end: End
    session: CommandSession | None
    request_id: int
    done: Callable[[], None]
    failed: Callable[[Exception], None]


class WaitingEnds:
    """Of one partition, by transaction."""

    def __init__(self) -> None:
        self._asked: dict[TxnID, list[AskedEnd]] = {}

    def of(self, txn_id: TxnID) -> list[AskedEnd]:
        """Who asked for the end of this transaction and waits, the newest last."""
        return list(self._asked.get(txn_id, ()))

    def add(self, asked: AskedEnd) -> bool:
        """Keep it. Returns: whether it is the first of its transaction."""
        txn_id = asked.end.txn_id
        others = self._asked.get(txn_id, ())
        self._asked[txn_id] = [one for one in others if not _is_superseded(one, asked)] + [asked]
        return not others

    def take(self, txn_id: TxnID) -> list[AskedEnd]:
        """They wait no more."""
        return self._asked.pop(txn_id)


def _is_superseded(earlier: AskedEnd, asked: AskedEnd) -> bool:
    """Whether nobody waits for an answer to the earlier one, and to it alone."""
    session = earlier.session
    if session is None:
        return False
    is_copy = session is asked.session and earlier.request_id == asked.request_id
    return is_copy or session.closed
