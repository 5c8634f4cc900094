"""What an administrator asks for: topics, subscriptions, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from magnetar.cluster import Cluster, ClusterInfo
from magnetar.model import (
    InitialPosition,
    SubscriptionType,
    TopicDescription,
    TopicSummary,
    TransactionAction,
    TransactionDescription,
    TransactionStatus,
    UncommittedMessage,
)
from magnetar.seeking import seek_command
from magnetar_core.errors import (
    InvalidTxnState,
    ResourceInUse,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, topic_pb2, transaction_pb2

T = TypeVar("T")


class Administration:
    """The administrative half of a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def cluster_info(self) -> ClusterInfo:
        """Who belongs to the cluster."""
        return await self._cluster.info()

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        retention_ms: int = 0,
        retention_bytes: int = 0,
        retain_unconsumed: bool = True,
    ) -> int:
        """Create a topic; returns its id, which is never reused.

        Args:
            retention_ms, retention_bytes: 0 is without limit.
            retain_unconsumed: keep what a subscription still needs, whatever the limits say.
        Raises:
            TopicExists: there is one of this name. After a broken link it may be this very one.
        """
        reply = await self._cluster.bootstrap.request(
            topic_pb2.CommandCreateTopic(
                topic=topic,
                partitions=partitions,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                retain_unconsumed=topic_pb2.YES if retain_unconsumed else topic_pb2.NO,
            )
        )
        return int(reply.topic_id)

    async def list_topics(self) -> list[TopicSummary]:
        reply = await self._cluster.bootstrap.request(topic_pb2.CommandListTopics())
        return [TopicSummary(one.topic, one.topic_id, one.partitions) for one in reply.topics]

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Raises: TopicNotFound."""
        return TopicDescription.from_wire(
            await self._cluster.bootstrap.request(topic_pb2.CommandDescribeTopic(topic=topic))
        )

    async def peek_uncommitted(
        self,
        topic: str,
        partition: int = 0,
        txn_id: TxnID | None = None,
        *,
        skip: int = 0,
        messages_max: int = 100,
    ) -> list[UncommittedMessage]:
        """What open transactions have written, in the order of their TxnIDs: for debugging.

        Args:
            txn_id: of this one only.
            skip: leave out so many, to go on where an earlier call ended. Transactions that end
                meanwhile shift the others.
            messages_max: at most 1,000.
        Raises:
            TopicNotFound: no such topic or partition.
        Source: PIP-31, READ_UNCOMMITTED.
        """
        route = await self._cluster.route(topic)
        reply: broker_pb2.CommandPeekResponse = await route.connection(partition).request(
            broker_pb2.CommandPeek(
                partition=route.partition_name(partition).to_wire(),
                uncommitted=True,
                txn_id=txn_id.to_wire() if txn_id is not None else None,
                start_offset=skip,
                messages_max=messages_max,
            )
        )
        return [
            UncommittedMessage(
                TxnID.from_wire(one.txn_id),
                one.value,
                one.key or None,
                dict(one.properties),
                one.event_time_ms or None,
            )
            for one in reply.messages
        ]

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic with all its messages and subscriptions.

        Args:
            force: abort the transactions that are in the way.
        Raises:
            TopicNotFound: there is none of this name.
            ResourceInUse: transactions are open or acks pend there. No effect.
        """
        command = topic_pb2.CommandDeleteTopic(topic=topic)
        await self._unless_in_use(
            lambda: self._cluster.bootstrap.request(command),
            lambda: self._transactions_of(topic, None),
            force,
        )

    async def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
    ) -> None:
        """Create a subscription on all partitions, without a consumer. Harmless if it exists."""
        route = await self._cluster.route(topic)
        for partition in range(route.partition_count):
            await route.connection(partition).request(
                broker_pb2.CommandSubscribe(
                    subscription=route.subscription_name(partition, subscription).to_wire(),
                    type=int(type),  # type: ignore[arg-type]
                    initial_position=int(InitialPosition.of(initial_position)),  # type: ignore[arg-type]
                )
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

    async def list_transactions(
        self,
        statuses: Iterable[TransactionStatus] = (),
        *,
        age_ms_min: int = 0,
        limit: int = 1_000,
    ) -> list[TransactionDescription]:
        """Live transactions of all coordinators.

        Args:
            statuses: only these; without any, OPEN, COMMITTING and ABORTING.
            limit: at most so many of each coordinator.
        """
        command = transaction_pb2.CommandListTxns(
            statuses=[int(status) for status in statuses],  # type: ignore[misc]
            age_ms_min=age_ms_min,
            limit=limit,
        )
        found: list[TransactionDescription] = []
        for coordinator in await self._cluster.coordinators():
            reply = await coordinator.request(command)
            found += [TransactionDescription.from_wire(one) for one in reply.transactions]
        return found

    async def describe_transaction(self, txn_id: TxnID) -> TransactionDescription:
        """Raises: TxnNotFound, TxnForgotten."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        return TransactionDescription.from_wire(reply.transaction)

    async def end_transaction(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        """End somebody's transaction by hand, with whatever it holds.

        Raises:
            InvalidTxnState: it ended the other way. No effect.
            TxnNotFound, TxnForgotten: as they say.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandEndTxn(
                txn_id=txn_id.to_wire(),
                txn_action=int(action),  # type: ignore[arg-type]
                wait_finished=wait_finished,
            ),
            patient=wait_finished,
        )
        return TransactionStatus(reply.status)

    async def accept_transaction_loss(self, txn_id: TxnID) -> None:
        """Let a commit go on without what a participant has lost (TxnIncomplete)."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        await coordinator.request(transaction_pb2.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))

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

        Source: docs/design/protocol.md, Subscriptions (j).
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
                except (InvalidTxnState, TxnNotFound, TxnForgotten):
                    pass  # It is committing, and will be out of the way soon.
            await asyncio.sleep(backoff.next_ms() / 1000)
