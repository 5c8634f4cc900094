"""Tells the coordinator of a transaction about its participants.

Participants of the same turn of the event loop travel in the same command. Sends and acks do not
wait for the answer, only the end does: the watermark finds and aborts a participant of which the
coordinator is never told. The coordinator may answer NewTxn before the participants that it names
are durable: a caller that waits for a send or an ack has them confirmed.
Source: PIP-31, Public APIs, the steps of TypedMessageBuilder#send and Consumer#acknowledge;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from google.protobuf.message import Message

from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import transaction_pb2


class Enrollment:
    """Adds the participants of a transaction, each once."""

    __slots__ = (
        "_coordinator",
        "_has_failed",
        "_identity",
        "_new_partitions",
        "_new_subscriptions",
        "_on_failed",
        "_scheduled",
        "_sealed",
        "_txn_id",
        "_unanswered",
        "_unconfirmed_partitions",
        "_unconfirmed_subscriptions",
        "_waiter",
        "partitions",
        "subscriptions",
    )

    def __init__(
        self,
        txn_id: TxnID,
        coordinator: ConnectionBase,
        on_failed: Callable[[MagnetarError], None],
        *,
        identity: ProducerIdentity | None = None,
        partitions: Iterable[PartitionName] = (),
        subscriptions: Iterable[SubscriptionName] = (),
        is_durable: bool = True,
    ) -> None:
        """The enrollment of a transaction that has just begun.

        Args:
            identity: the producer id and epoch, for the transaction of a transactional producer.
            partitions: those that the coordinator knew from the beginning.
            subscriptions: those that the coordinator knew from the beginning.
            is_durable: whether it has confirmed that it knows them.
        """
        self._identity = identity
        # In the order in which they were added; the values have no meaning.
        self.partitions: dict[PartitionName, None] = dict.fromkeys(partitions)
        self.subscriptions: dict[SubscriptionName, None] = dict.fromkeys(subscriptions)
        self._txn_id = txn_id
        self._coordinator = coordinator
        self._on_failed = on_failed
        self._new_partitions: list[PartitionName] = []
        self._new_subscriptions: list[SubscriptionName] = []
        self._unconfirmed_partitions = [] if is_durable else list(self.partitions)
        self._unconfirmed_subscriptions = [] if is_durable else list(self.subscriptions)
        self._scheduled: asyncio.Handle | None = None
        self._sealed = False
        self._has_failed = False
        # Commands that the coordinator has not answered.
        self._unanswered = 0
        self._waiter: asyncio.Future[None] | None = None

    def partition(self, name: PartitionName) -> None:
        """Add a partition to which messages will be sent."""
        if name not in self.partitions:
            self.partitions[name] = None
            self._new_partitions.append(name)
            self._flush_soon()

    def subscription(self, name: SubscriptionName) -> None:
        """Add a subscription on which messages will be acknowledged."""
        if name not in self.subscriptions:
            self.subscriptions[name] = None
            self._new_subscriptions.append(name)
            self._flush_soon()

    def confirm_soon(self) -> None:
        """Have the coordinator confirm the participants that NewTxn named: adding repeats that."""
        if self._unconfirmed_partitions or self._unconfirmed_subscriptions:
            self._new_partitions += self._unconfirmed_partitions
            self._new_subscriptions += self._unconfirmed_subscriptions
            self._unconfirmed_partitions = []
            self._unconfirmed_subscriptions = []
            self._flush_soon()

    async def answered(self) -> None:
        """Wait until the coordinator knows all participants, or `on_failed` was called."""
        if self._sealed or self._has_failed:
            # Answers are no longer handled, and so callers that wait for them would never wake up.
            return
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._coordinator.runtime.guarded(self._fail, self._flush)
        if self._unanswered and not self._has_failed:
            if self._waiter is None:
                self._waiter = self._coordinator.runtime.loop.create_future()
            await asyncio.shield(self._waiter)

    def _fail(self, error: MagnetarError) -> None:
        """Tell that some may never be added: the enrollment stops waiting for them."""
        self._has_failed = True
        if not self._sealed:
            self._on_failed(error)
            self._wake()

    def seal(self) -> None:
        """Ignore further answers, since the transaction has ended."""
        if self._sealed:
            return
        self._sealed = True
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._wake()
        # It refers to the transaction, which refers to this.
        del self._on_failed

    def _flush_soon(self) -> None:
        if self._scheduled is None:
            self._scheduled = self._coordinator.runtime.call_soon(self._fail, self._flush)

    def _flush(self) -> None:
        self._scheduled = None
        partitions, self._new_partitions = self._new_partitions, []
        if partitions:
            add_partitions = transaction_pb2.CommandAddPartitionToTxn(
                txn_id=self._txn_id.to_wire(),
                partitions=[partition.to_wire() for partition in partitions],
                identity=None if self._identity is None else self._identity.to_wire(),
            )
            self._ask(add_partitions)
        subscriptions, self._new_subscriptions = self._new_subscriptions, []
        if subscriptions:
            add_subscriptions = transaction_pb2.CommandAddSubscriptionToTxn(
                txn_id=self._txn_id.to_wire(),
                subscriptions=[subscription.to_wire() for subscription in subscriptions],
                identity=None if self._identity is None else self._identity.to_wire(),
            )
            self._ask(add_subscriptions)

    def _ask(
        self,
        command: transaction_pb2.CommandAddPartitionToTxn
        | transaction_pb2.CommandAddSubscriptionToTxn,
    ) -> None:
        self._unanswered += 1
        self._coordinator.request_soon(command, self._on_result)

    def _on_result(self, result: Message | MagnetarError) -> None:
        self._unanswered -= 1
        if self._sealed:
            return
        if isinstance(result, MagnetarError):
            self._on_failed(result)
        if not self._unanswered:
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
