"""Forced deletions and seeks abort the transactions that stand in their way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from magnetar.admin.topic_descriptions import TopicDescription
from magnetar.admin.transactions import TransactionAdmin
from magnetar.enums import TransactionAction
from magnetar.link.cluster import Cluster
from magnetar.link.whole_topics import ask_partitions
from magnetar_core.errors import (
    InvalidTxnState,
    ResourceInUse,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import topic_pb2

T = TypeVar("T")


class ForcedAborts:
    """Ends the transactions that stand in the way of an administrator."""

    def __init__(self, cluster: Cluster, transactions: TransactionAdmin) -> None:
        self._cluster = cluster
        self._transactions = transactions

    async def unless_in_use(
        self,
        ask: Callable[[], Awaitable[T]],
        topic: str,
        subscription: str | None,
        *,
        force: bool,
        partitions: Iterable[int] = (),
    ) -> T:
        """Send a command; with force, abort the transactions in its way and send it again.

        Args:
            ask: sends the command; every call sends it again.
            topic: the topic of the command.
            subscription: only transactions with pending acks on this subscription are in the way;
                None: all transactions that are open on the topic, or have pending acks there.
            force: abort the transactions at their coordinators; without it, ResourceInUse is
                raised.
            partitions: where the command has its effect; empty: on all partitions.
        Raises:
            ResourceInUse: transactions are in the way, and force is not set or the operation's
                time is up.
            InvalidTxnState: a transaction in the way is in two-phase commit and may be prepared:
                complete it, or terminate it with abort_prepared. Others may be aborted.
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
            for txn_id in await self._in_the_way(topic, subscription, partitions):
                try:
                    await self._transactions.end(txn_id, TransactionAction.ABORT)
                except InvalidTxnState:
                    if await self._may_be_prepared(txn_id):
                        raise
                    # It is committing, and will be out of the way soon.
                except (TxnNotFound, TxnForgotten):
                    pass
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def _may_be_prepared(self, txn_id: TxnID) -> bool:
        try:
            return (await self._transactions.describe(txn_id)).may_be_prepared
        except (TxnNotFound, TxnForgotten):
            return False

    async def _in_the_way(
        self, topic: str, subscription: str | None, partitions: Iterable[int]
    ) -> list[TxnID]:
        """Return the transactions that are open on the topic or have pending acks there."""
        found: dict[TxnID, None] = {}
        for partition in (await describe_topic(self._cluster, topic, partitions)).partitions:
            if subscription is None:
                found.update(dict.fromkeys(partition.open_txns))
            for one in partition.subscriptions:
                if subscription in (None, one.subscription):
                    found.update(dict.fromkeys(one.pending_txns))
        return list(found)


async def describe_topic(
    cluster: Cluster, topic: str, partitions: Iterable[int] = (), *, txns_max: int = 0
) -> TopicDescription:
    """Describe a topic's partitions and subscriptions.

    Args:
        partitions: only these; empty: all.
        txns_max: how many transactions each of these names at most; 0: 1,000.
    Raises:
        TopicNotFound: no topic has this name.
        LogUnavailable: a broker of a partition does not answer in time.
    """
    reply, answers = await ask_partitions(
        cluster,
        topic,
        partitions,
        lambda numbers: topic_pb2.CommandDescribeTopic(topic=topic, txns_max=txns_max),
    )
    return TopicDescription.from_wire(reply, answers)
