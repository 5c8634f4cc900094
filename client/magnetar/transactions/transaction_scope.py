"""The context manager that begins a transaction, and commits or aborts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from magnetar.transactions.transaction import Transaction


class TransactionScope:
    """Begins a transaction on entry. Commits on exit, and aborts on an exception."""

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._begin()
        return self._transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        await self._transaction.__aexit__(kind, error, traceback)
