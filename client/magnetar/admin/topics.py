"""Administration of topics: create, alter, list, describe, delete them, inspect partitions."""

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
from magnetar.arguments import checked, refusal
from magnetar.link.cluster import Cluster
from magnetar.link.whole_topics import ask_partitions
from magnetar_core.errors import Gone
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

    @checked
    async def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        retention_ms: int = 0,
        retention_bytes: int = 0,
        retain_unconsumed: bool = True,
        exist_ok: bool = False,
    ) -> int:
        """Create a topic.

        Args:
            topic: the topic's name.
            partitions: how many partitions the topic gets.
            retention_ms: how long messages are kept, in milliseconds; 0: no limit.
            retention_bytes: how many bytes are kept in each partition; 0: no limit.
            retain_unconsumed: keep the messages that a subscription still needs, even beyond the
                retention's limits.
            exist_ok: succeed if the topic exists and has these partitions and settings.
        Returns:
            The topic's id, which is never used again.
        Raises:
            TopicExists: a topic has this name. After a restart of the broker, it can be the topic
                that this call has created itself. With exist_ok: it has other partitions or
                settings; the error names them.
            InvalidArgument: the name or the number of partitions is not allowed.
            QuotaExceeded: the broker has too many topics.
        """
        if partitions < 1:
            raise refusal("partitions", partitions, "an int from 1")
        reply = await self._cluster.any_broker.request(
            topic_pb2.CommandCreateTopic(
                topic=topic,
                partitions=partitions,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                retain_unconsumed=topic_pb2.YES if retain_unconsumed else topic_pb2.NO,
                exist_ok=exist_ok,
            )
        )
        return reply.topic_id

    @checked
    async def alter(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        keys_move: bool = False,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retain_unconsumed: bool | None = None,
        dry_run: bool = False,
        topic_id: int = 0,
    ) -> int:
        """Change a topic: give it more partitions, or other settings. What is None stays.

        Subscriptions and groups that the topic has begin at the beginning of its new partitions.
        Producers and consumers use them when they next look the topic up, after
        `topic_refresh_ms` at most.

        Args:
            topic: the topic's name.
            partitions: how many partitions the topic is to have: as many as it has, or more.
            keys_move: confirms that most keys lie in another partition from then on; it is needed
                with more partitions.
            retention_ms: as for create.
            retention_bytes: as for create.
            retain_unconsumed: as for create.
            dry_run: only check whether the call would succeed.
            topic_id: change the topic only if it has this id; 0: whatever its id is.
        Returns:
            The topic's id.
        Raises:
            TopicNotFound: no topic has this name.
            Gone: the topic of this name has another id. No effect.
            InvalidArgument: the topic would have fewer partitions, or too many, or keys_move is
                missing. No effect.
            QuotaExceeded: the topics of the cluster have too many partitions. No effect.
            LogUnavailable: a broker of the topic's partitions does not answer, and they can only
                get more when all of them do. No effect.
        """
        if partitions is not None and partitions < 1:
            raise refusal("partitions", partitions, "an int from 1")
        command = topic_pb2.CommandAlterTopic(
            topic=topic,
            topic_id=topic_id,
            partitions=partitions or 0,
            keys_move=keys_move,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            dry_run=dry_run,
        )
        if retain_unconsumed is not None:
            command.retain_unconsumed = topic_pb2.YES if retain_unconsumed else topic_pb2.NO
        return (await self._cluster.any_broker.request(command)).topic_id

    async def list(self) -> TopicSummaries:
        """List all topics, with their ids and their numbers of partitions."""
        reply = await self._cluster.any_broker.request(topic_pb2.CommandListTopics())
        return [TopicSummary(one.topic, one.topic_id, one.partitions) for one in reply.topics]

    @checked
    async def describe(self, topic: str, *, txns_max: int = 1_000) -> TopicDescription:
        """Describe a topic's partitions and their subscriptions.

        Args:
            topic: the topic's name.
            txns_max: how many transactions each partition and each subscription names at most, up
                to 1,000.
        Raises:
            TopicNotFound: no topic has this name.
            LogUnavailable: a broker of a partition does not answer in time; the error names it.
        """
        return await describe_topic(self._cluster, topic, txns_max=txns_max)

    @checked
    async def delete(self, topic: str, *, force: bool = False, topic_id: int = 0) -> None:
        """Delete a topic with all its messages and subscriptions.

        Args:
            topic: the topic's name.
            force: first abort the transactions that use the topic.
            topic_id: delete the topic only if it has this id; 0: whatever its id is.
        Raises:
            TopicNotFound: no topic has this name.
            Gone: the topic of this name has another id. No effect.
            ResourceInUse: the topic has open transactions or pending acks. No effect.
            InvalidTxnState: with force: one of these transactions may be prepared for two-phase
                commit. The topic stays; others of them may be aborted.
        """
        command = topic_pb2.CommandDeleteTopic(topic=topic, topic_id=topic_id)
        await self._forced.unless_in_use(
            lambda: self._cluster.any_broker.request(command), topic, None, force=force
        )

    @checked
    async def list_offsets(
        self,
        topic: str,
        *,
        partitions: Iterable[int] = (),
        append_time_ms: int | None = None,
        topic_id: int = 0,
    ) -> TopicOffsets:
        """Return the first and end offsets of partitions, and the offset that belongs to a time.

        Args:
            topic: the topic's name.
            partitions: the numbers of the partitions; empty: all partitions.
            append_time_ms: also return the offset of the first message that was stored at this
                time or later, in milliseconds since the Unix epoch.
            topic_id: the id that the topic must have; 0: any id.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
            Gone: the topic of this name has another id.
            LogUnavailable: a broker of a partition does not answer in time; the error names it.
        """
        reply, answers = await ask_partitions(
            self._cluster,
            topic,
            partitions,
            lambda numbers: broker_pb2.CommandListOffsets(
                topic=topic,
                topic_id=topic_id,
                partitions=numbers,
                append_time_ms=append_time_ms,
            ),
            topic_id=topic_id,
        )
        # Another process may read up to these offsets for this client: its commits get higher
        # stamps.
        self._cluster.runtime.saw(max((answer.highest_stamp for answer in answers), default=0))
        return TopicOffsets(
            reply.topic_id,
            tuple(
                PartitionOffsets(
                    answer.partition,
                    answer.ledger_id,
                    answer.first_offset,
                    answer.end_offset,
                    None if append_time_ms is None else answer.time_offset,
                )
                for answer in answers
            ),
        )

    @checked
    async def skip_damaged(
        self, topic: str, partition: int = 0, *, dry_run: bool = False
    ) -> OffsetRanges:
        """Give up the damaged messages of a partition. Readers and consumers then skip them.

        Args:
            topic: the topic's name.
            partition: the number of the partition.
            dry_run: return the damaged ranges, and give up nothing.
        Returns:
            The first and the last offset of each damaged range that was not given up before.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
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

    @checked
    async def peek_uncommitted(
        self,
        topic: str,
        partition: int = 0,
        txn_id: TxnID | None = None,
        *,
        skip: int = 0,
        messages_max: int = 100,
    ) -> UncommittedMessages:
        """Return the messages of open transactions, for debugging, in the order of their TxnIDs.

        Args:
            topic: the topic's name.
            partition: the number of the partition.
            txn_id: only the messages of this transaction; None: of all open transactions.
            skip: how many messages to leave out, to go on where an earlier call ended. When a
                transaction ends between two calls, the messages of the others move up.
            messages_max: how many messages to return at most, up to 1,000.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
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
                None if one.null_value else one.value,
                one.key if one.HasField("key") else None,
                dict(one.properties),
                one.event_time_ms if one.HasField("event_time_ms") else None,
            )
            for one in reply.messages
        ]

    @checked
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
        """List the transactions with messages in a partition's sidecar, open or committed.

        Args:
            topic: the topic's name.
            partition: the number of the partition.
            first_txn_id: where this page begins: the next_txn_id of the page before; None: the
                first page.
            limit: how many transactions to return at most, up to 10,000.
            txn_ids: only these transactions, at most 10,000; empty: all.
            topic_id: the id that the topic must have; 0: any id.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
            Gone: the topic of this name has another id.
        """
        route = await self._cluster.route(topic)
        if topic_id not in (0, route.topic_id):
            raise Gone(f"topic {topic!r} of id {topic_id} was deleted; it has id {route.topic_id}")
        route.require(partition)
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
