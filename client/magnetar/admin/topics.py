"""What an administrator does with topics: create, list, describe, delete, look into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from magnetar.admin.forced_aborts import ForcedAborts, describe_topic
from magnetar.admin.topic_descriptions import (
    PartitionOffsets,
    TopicDescription,
    TopicOffsets,
    TopicSummary,
    UncommittedMessage,
)
from magnetar.admin.transaction_descriptions import StoredTransactions
from magnetar.link.cluster import Cluster
from magnetar_core.errors import (
    Gone,
    TopicNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, topic_pb2

# `list` is a method of the class below.
TopicSummaries: TypeAlias = list[TopicSummary]
OffsetRanges: TypeAlias = list[tuple[int, int]]
UncommittedMessages: TypeAlias = list[UncommittedMessage]


class TopicAdmin:
    """Administers topics: `client.admin.topics`."""

    def __init__(self, cluster: Cluster, forced: ForcedAborts) -> None:
        self._cluster = cluster
        self._forced = forced

    async def create(
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
            TopicExists: there is one of this name. After a restart of the broker it may be this
                very one.
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
        return reply.topic_id

    async def list(self) -> TopicSummaries:
        """List all topics, with their ids and their numbers of partitions."""
        reply = await self._cluster.bootstrap.request(topic_pb2.CommandListTopics())
        return [TopicSummary(one.topic, one.topic_id, one.partitions) for one in reply.topics]

    async def describe(self, topic: str) -> TopicDescription:
        """Describe a topic's partitions, and the subscriptions on them.

        Raises:
            TopicNotFound: there is none of this name.
        """
        return await describe_topic(self._cluster, topic)

    async def delete(self, topic: str, *, force: bool = False, topic_id: int = 0) -> None:
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
        await self._forced.unless_in_use(
            lambda: self._cluster.bootstrap.request(command), topic, None, force=force
        )

    async def list_offsets(
        self,
        topic: str,
        *,
        partitions: Iterable[int] = (),
        append_time_ms: int | None = None,
        topic_id: int = 0,
    ) -> TopicOffsets:
        """Where partitions begin and end, and which offset belongs to a time.

        Args:
            partitions: only these; without any, all.
            append_time_ms: milliseconds since the Unix epoch.
            topic_id: of the topic that is meant; 0: whichever has the name now.
        Raises:
            TopicNotFound: no such topic or partition.
            Gone: the topic of that name has another id.
        """
        reply = await self._cluster.bootstrap.request(
            broker_pb2.CommandListOffsets(
                topic=topic,
                topic_id=topic_id,
                partitions=partitions,
                append_time_ms=append_time_ms,
            )
        )
        return TopicOffsets(
            reply.topic_id,
            tuple(
                PartitionOffsets(
                    one.partition,
                    one.ledger_id,
                    one.first_offset,
                    one.end_offset,
                    None if append_time_ms is None else one.time_offset,
                )
                for one in reply.partitions
            ),
        )

    async def skip_damaged(
        self, topic: str, partition: int = 0, *, dry_run: bool = False
    ) -> OffsetRanges:
        """Have everybody go on behind what cannot be read of a partition: it is given up.

        Args:
            dry_run: only look.
        Returns:
            First and last offsets of what was damaged and not given up before.
        Raises:
            TopicNotFound: no such topic or partition.
        """
        route = await self._cluster.route(topic)
        damaged: OffsetRanges = []
        next_offset = 0
        while True:
            reply = await route.connection(partition).request(
                broker_pb2.CommandSkipDamaged(
                    partition=route.partition_name(partition).to_wire(),
                    start_offset=next_offset,
                    dry_run=dry_run,
                )
            )
            damaged += [(one.first, one.last) for one in reply.damaged]
            next_offset = reply.next_offset
            if next_offset >= reply.end_offset:
                return damaged

    async def peek_uncommitted(
        self,
        topic: str,
        partition: int = 0,
        txn_id: TxnID | None = None,
        *,
        skip: int = 0,
        messages_max: int = 100,
    ) -> UncommittedMessages:
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
        reply = await route.connection(partition).request(
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

    async def stored_transactions(
        self,
        topic: str,
        partition: int,
        *,
        first_txn_id: TxnID | None = None,
        limit: int = 1_000,
        txn_ids: Iterable[TxnID] = (),
        topic_id: int = 0,
    ) -> StoredTransactions:
        """Which transactions have messages in a partition's sidecar, and which of them are open.

        Args:
            first_txn_id: begin with this one, as the page before says.
            limit: at most 10,000.
            txn_ids: only these of them, at most 10,000.
            topic_id: of the topic that is meant; 0: whichever has the name now.
        Raises:
            TopicNotFound: no such topic or partition.
            Gone: the topic of that name has another id.
        """
        route = await self._cluster.route(topic)
        if topic_id not in (0, route.topic_id):
            raise Gone(f"topic {topic!r} of id {topic_id} was deleted; it has id {route.topic_id}")
        if not 0 <= partition < route.partition_count:
            raise TopicNotFound(f"{topic} has no partition {partition}")
        name = route.partition_name(partition)
        reply = await route.connection(partition).request(
            broker_pb2.CommandListStoredTxns(
                partition=name.to_wire(),
                first_txn_id=first_txn_id.to_wire() if first_txn_id is not None else None,
                limit=limit,
                txn_ids=[one.to_wire() for one in txn_ids],
            )
        )
        return StoredTransactions.from_wire(name, reply)
