"""What a transaction's coordinator knows of its participants, and what waits for it to know.

Additions of one turn of the event loop travel in one command.
Source: PIP-31, Public APIs, the steps of TypedMessageBuilder#send and Consumer#acknowledge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.connection import Connection
from magnetar.link_session import Result
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import transaction_pb2

OnReady = Callable[[], None]


class Enrollment:
    """Adds participants to one transaction, each once."""

    __slots__ = (
        "_closed",
        "_coordinator",
        "_new_partitions",
        "_new_subscriptions",
        "_on_failed",
        "_partitions",
        "_scheduled",
        "_subscriptions",
        "_txn_id",
    )

    def __init__(
        self,
        txn_id: TxnID,
        coordinator: Connection,
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        self._txn_id = txn_id
        self._coordinator = coordinator
        self._on_failed = on_failed
        # None once the coordinator has answered.
        self._partitions: dict[PartitionName, list[OnReady] | None] = {}
        self._subscriptions: dict[SubscriptionName, list[OnReady] | None] = {}
        self._new_partitions: list[PartitionName] = []
        self._new_subscriptions: list[SubscriptionName] = []
        self._scheduled: asyncio.Handle | None = None
        self._closed = False

    @property
    def partitions(self) -> list[PartitionName]:
        return list(self._partitions)

    @property
    def subscriptions(self) -> list[SubscriptionName]:
        return list(self._subscriptions)

    def partition(self, name: PartitionName, on_ready: OnReady) -> None:
        """Add a partition; call back when its sends may leave."""
        if name not in self._partitions:
            self._partitions[name] = []
            self._new_partitions.append(name)
            self._flush_soon()
        waiting = self._partitions[name]
        if waiting is None:
            on_ready()
        else:
            waiting.append(on_ready)

    def subscription(self, name: SubscriptionName, on_ready: OnReady) -> None:
        """Add a subscription; call back when its acks may leave."""
        if name not in self._subscriptions:
            self._subscriptions[name] = []
            self._new_subscriptions.append(name)
            self._flush_soon()
        waiting = self._subscriptions[name]
        if waiting is None:
            on_ready()
        else:
            waiting.append(on_ready)

    def close(self) -> None:
        """Add nothing more: the transaction ends."""
        if self._closed:
            return
        self._closed = True
        if self._scheduled is not None:
            self._scheduled.cancel()
        # It refers to the transaction, which refers to this.
        del self._on_failed

    def _flush_soon(self) -> None:
        if self._scheduled is None and not self._closed:
            self._scheduled = self._coordinator.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = None
        partitions, self._new_partitions = self._new_partitions, []
        if partitions:
            command: Any = transaction_pb2.CommandAddPartitionToTxn(
                txn_id=self._txn_id.to_wire(), partitions=[one.to_wire() for one in partitions]
            )
            self._ask(command, partitions, self._partitions)
        subscriptions, self._new_subscriptions = self._new_subscriptions, []
        if subscriptions:
            command = transaction_pb2.CommandAddSubscriptionToTxn(
                txn_id=self._txn_id.to_wire(),
                subscriptions=[one.to_wire() for one in subscriptions],
            )
            self._ask(command, subscriptions, self._subscriptions)

    def _ask(self, command: Any, names: list[Any], waiting: dict[Any, Any]) -> None:
        def on_result(result: Result) -> None:
            if self._closed:
                return
            if isinstance(result, MagnetarError):
                self._on_failed(result)
                return
            for name in names:
                callbacks, waiting[name] = waiting[name], None
                for on_ready in callbacks:
                    on_ready()

        self._coordinator.request_soon(command, on_result)
