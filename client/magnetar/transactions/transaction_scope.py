"""The context manager that begins a transaction, and commits or aborts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_work import TransactionWork
from magnetar_core.errors import InvalidTxnState


class TransactionScope:
    """Begins a transaction on entry. Commits on exit, and aborts on an exception.

    It has one block at a time; after the block it may be entered again, for another transaction.
    """

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._transaction: Transaction | None = None
        self._is_entered = False

    @property
    def work(self) -> TransactionWork:
        """The work of the transaction; only after entry."""
        assert self._transaction is not None
        return self._transaction.work

    async def __aenter__(self) -> Transaction:
        if self._is_entered:
            raise InvalidTxnState(
                "the block of this scope is open: call client.transaction() once for each block"
            )
        self._is_entered = True
        try:
            self._transaction = await self._begin()
        except BaseException:
            self._is_entered = False
            raise
        return await self._transaction.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        try:
            await self._transaction.__aexit__(kind, error, traceback)
        finally:
            self._is_entered = False
