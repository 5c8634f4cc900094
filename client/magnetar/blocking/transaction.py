"""Transactions without asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import magnetar
from magnetar.blocking.loop_thread import LoopThread
from magnetar.enums import TransactionStatus
from magnetar.transactions.participants import TransactionPart
from magnetar_core.ids import TxnID


class Transaction:
    """See magnetar.Transaction. As a context manager it commits, or aborts on an exception."""

    def __init__(self, loop: LoopThread, inner: magnetar.Transaction) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def txn_id(self) -> TxnID:
        return self.inner.txn_id

    @property
    def status(self) -> TransactionStatus:
        return self.inner.status

    def commit(self, *, wait_finished: bool = False, fingerprint: str = "") -> None:
        self._loop.wait(self.inner.commit(wait_finished=wait_finished, fingerprint=fingerprint))

    def abort(self) -> None:
        self._loop.wait(self.inner.abort())

    def leave(self) -> TransactionPart:
        return self._loop.wait(self.inner.leave())

    def withdraw(self) -> None:
        self._loop.call(self.inner.withdraw)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.wait(self.inner.__aexit__(kind, error, traceback))


def inner_of(txn: Transaction | None) -> magnetar.Transaction | None:
    return None if txn is None else txn.inner
