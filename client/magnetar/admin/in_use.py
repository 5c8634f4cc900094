"""Deletions and seeks, which open transactions stand in the way of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from magnetar.admin.identities import IdentityAdministration
from magnetar.admin.topics import TopicAdministration
from magnetar.admin.transactions import TransactionAdministration
from magnetar.enums import InitialPosition, TransactionAction
from magnetar.messaging.seeking import seek_command
from magnetar_core.errors import (
    InvalidTxnState,
    ResourceInUse,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, topic_pb2

T = TypeVar("T")


class InUseAdministration(TopicAdministration, TransactionAdministration, IdentityAdministration):
    """What is refused while transactions are open, unless it is forced."""

    async def delete_topic(self, topic: str, *, force: bool = False, topic_id: int = 0) -> None:
        """Delete a topic with all its messages and subscriptions.

        Args:
            force: abort the transactions that are in the way.
            topic_id: only this one; 0: whichever has the name.
        Raises:
            TopicNotFound: there is none of this name.
            Gone: the topic of this name has another id. No effect.
            ResourceInUse: transactions are open or acks pend there. No effect.
        """
        command = topic_pb2.CommandDeleteTopic(topic=topic, topic_id=topic_id)
        await self._unless_in_use(
            lambda: self._cluster.bootstrap.request(command),
            lambda: self._transactions_of(topic, None),
            force,
        )

    async def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription on all partitions.

        Args:
            force: abort the transactions that are in the way.
        Raises:
            SubscriptionNotFound: there is none of this name.
            ResourceInUse: acks pend there. It may be deleted on some partitions; repeat it.
        """
        route = await self._cluster.route(topic)
        for partition in range(route.partition_count):
            command = broker_pb2.CommandUnsubscribe(
                subscription=route.subscription_name(partition, subscription).to_wire()
            )
            connection = route.connection(partition)
            await self._unless_in_use(
                lambda connection=connection, command=command: connection.request(command),  # type: ignore[misc]
                lambda: self._transactions_of(topic, subscription),
                force,
            )

    async def seek(
        self,
        topic: str,
        subscription: str,
        *,
        offset: int | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
        partition: int | None = None,
        force: bool = False,
    ) -> dict[int, int]:
        """Move a subscription's cursor. Name exactly one target.

        Args:
            append_time_ms: milliseconds since the Unix epoch; the first message not older.
            position: "earliest" or "latest".
            partition: only there; all otherwise.
            force: abort the transactions whose pending acks are in the way.
        Returns: the new offset of each partition.
        Raises:
            SubscriptionNotFound: there is none of this name.
            ResourceInUse: acks pend there. No effect on that partition.
        """
        route = await self._cluster.route(topic)
        moved: dict[int, int] = {}
        for one in range(route.partition_count) if partition is None else (partition,):
            command = seek_command(
                route.subscription_name(one, subscription), offset, None, append_time_ms, position
            )
            connection = route.connection(one)
            reply = await self._unless_in_use(
                lambda connection=connection, command=command: connection.request(command),  # type: ignore[misc]
                lambda: self._transactions_of(topic, subscription),
                force,
            )
            moved[one] = reply.offset
        return moved

    async def _transactions_of(self, topic: str, subscription: str | None) -> list[TxnID]:
        """Those that are open on a topic, or whose acks pend on one of its subscriptions."""
        found: dict[TxnID, None] = {}
        for partition in (await self.describe_topic(topic)).partitions:
            if subscription is None:
                found.update(dict.fromkeys(partition.open_txns))
            for one in partition.subscriptions:
                if subscription in (None, one.subscription):
                    found.update(dict.fromkeys(one.pending_txns))
        return list(found)

    async def _unless_in_use(
        self,
        ask: Callable[[], Awaitable[T]],
        in_the_way: Callable[[], Awaitable[list[TxnID]]],
        force: bool,
    ) -> T:
        """Ask; when forced, end what is in the way at its coordinator first, then ask again.

        Source: docs/design/0001-protocol.md, Subscriptions (j).
        """
        runtime = self._cluster.runtime
        deadline_ms = runtime.now_ms() + runtime.config.operation_timeout_ms
        backoff = runtime.backoff()
        while True:
            try:
                return await ask()
            except ResourceInUse:
                if not force or runtime.now_ms() >= deadline_ms:
                    raise
            for txn_id in await in_the_way():
                try:
                    await self.end_transaction(txn_id, TransactionAction.ABORT)
                except InvalidTxnState as error:
                    # It is committing, and will be out of the way soon; or it has an owner.
                    if "transactional_id" in error.details:
                        await self.force_terminate(error.details["transactional_id"])
                except (TxnNotFound, TxnForgotten):
                    pass
            await asyncio.sleep(backoff.next_ms() / 1000)
