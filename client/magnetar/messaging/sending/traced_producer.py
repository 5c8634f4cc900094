"""A producer of a client that makes traces: its messages name the span that sent them."""

from __future__ import annotations

from magnetar.link.traces import ClientTraces
from magnetar.messaging.sending.message_arguments import Properties
from magnetar.messaging.sending.producer import Producer
from magnetar.messaging.sending.producer_work import ProducerWork
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NOT_GIVEN, NotGiven
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.ids import MessageId


class TracedProducer(Producer):
    """A Producer whose messages have the property `traceparent`, unless they have it already.

    The messages of send_many() and send_columns() do not have it: they have no properties.
    """

    def __init__(self, work: ProducerWork, traces: ClientTraces) -> None:
        super().__init__(work)
        self._traces = traces

    async def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> MessageId | TxnSend:
        """Send a message: see Producer.send."""
        return await super().send(
            value,
            key,
            properties=self._traces.carried(properties),
            event_time_ms=event_time_ms,
            partition=partition,
            txn=txn,
        )

    def send_nowait(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Add a message to a batch: see Producer.send_nowait."""
        super().send_nowait(
            value,
            key,
            properties=self._traces.carried(properties),
            event_time_ms=event_time_ms,
            partition=partition,
            txn=txn,
        )

    async def enqueue(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Properties | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Add a message to a batch: see Producer.enqueue."""
        await super().enqueue(
            value,
            key,
            properties=self._traces.carried(properties),
            event_time_ms=event_time_ms,
            partition=partition,
            txn=txn,
        )
