"""The context manager that begins a transaction, and commits or aborts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import TransactionBlock


class TransactionScope:
    """Begins a transaction on entry. Commits on exit, and aborts on an exception."""

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._transaction: Transaction | None = None

    @property
    def block(self) -> TransactionBlock:
        """The block that is covered; only after entry."""
        assert self._transaction is not None
        return self._transaction.block

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._begin()
        return await self._transaction.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        await self._transaction.__aexit__(kind, error, traceback)
