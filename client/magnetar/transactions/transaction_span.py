"""The span of a transaction, from its beginning until this client learns its outcome."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from magnetar.transactions.beginning import Begin, Begun
from magnetar.transactions.transaction_work import TransactionWork
from magnetar_core.ids import PartitionName, SubscriptionName

if TYPE_CHECKING:
    from magnetar.link.traces import ClientTraces


class TransactionSpan:
    """The span of a transaction; its commands are spans below it."""

    def __init__(self, traces: ClientTraces) -> None:
        self._traces = traces
        self._span = traces.transaction()
        self._begun: Begun | None = None

    def around(self, begin: Begin) -> Begin:
        """Return a function that begins the transaction inside the span."""

        async def begin_inside(
            partitions: Collection[PartitionName], subscriptions: Collection[SubscriptionName]
        ) -> Begun:
            with self._traces.inside(self._span):
                begun = await begin(partitions, subscriptions)
            self._begun = begun
            self._traces.begun(begun.txn_id, self._span)
            return begun

        return begin_inside

    def ended(self, txn: TransactionWork) -> None:
        """End the span with the outcome."""
        self._span.note({"magnetar.txn.outcome": txn.status.name.lower()})
        self.end(txn.failure)

    def end(self, error: BaseException | None) -> None:
        """End the span. Repeating it is harmless."""
        if self._begun is not None:
            self._traces.ended(self._begun.txn_id, self._span)
        self._span.end("" if error is None else self._traces.error_type(error))
