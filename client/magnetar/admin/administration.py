"""What an administrator asks for: topics, subscriptions, transactions; groups lie beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from magnetar.admin.groups import GroupAdministration
from magnetar.admin.producer_descriptions import (
    HangingTransaction,
    NameDescription,
    ProducerDescription,
    TransactionalIdDescription,
)
from magnetar.admin.topic_descriptions import (
    PartitionOffsets,
    TopicDescription,
    TopicOffsets,
    TopicSummary,
    UncommittedMessage,
)
from magnetar.admin.transaction_descriptions import StoredTransactions, TransactionDescription
from magnetar.enums import InitialPosition, SubscriptionType, TransactionAction, TransactionStatus
from magnetar.link.cluster import Cluster, ClusterInfo
from magnetar.link.connection import Connection
from magnetar.messaging.seeking import seek_command
from magnetar_core.errors import (
    Gone,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    OutcomeUnknown,
    ResourceInUse,
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, topic_pb2, transaction_pb2

T = TypeVar("T")

# A client names a participant to the coordinator while it writes there already.
JOINING_MS = 10_000
# Of who writes in a transaction and names no producer's epoch.
NO_EPOCH = -1
# About single transactions, that are on their way at the same time.
QUESTIONS_MAX = 256


class Administration(GroupAdministration):
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
        return int(reply.topic_id)

    async def list_topics(self) -> list[TopicSummary]:
        reply = await self._cluster.bootstrap.request(topic_pb2.CommandListTopics())
        return [TopicSummary(one.topic, one.topic_id, one.partitions) for one in reply.topics]

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Raises: TopicNotFound."""
        return TopicDescription.from_wire(
            await self._cluster.bootstrap.request(topic_pb2.CommandDescribeTopic(topic=topic))
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
        reply: broker_pb2.CommandListOffsetsResponse = await self._cluster.bootstrap.request(
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
    ) -> list[tuple[int, int]]:
        """Have everybody go on behind what cannot be read of a partition: it is given up.

        Args:
            dry_run: only look.
        Returns:
            First and last offsets of what was damaged and not given up before.
        Raises:
            TopicNotFound: no such topic or partition.
        """
        route = await self._cluster.route(topic)
        damaged: list[tuple[int, int]] = []
        next_offset = 0
        while True:
            reply: broker_pb2.CommandSkipDamagedResponse = await route.connection(
                partition
            ).request(
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
        transactional_id_pattern: str = "",
        producer_ids: Iterable[int] = (),
        tcid: int | None = None,
        limit: int = 1_000,
        on_unanswered: Callable[[int, MagnetarError], None] | None = None,
    ) -> list[TransactionDescription]:
        """Transactions of all coordinators, those of each from the oldest to the newest.

        Of those that have ended, the latest ones that its coordinator has not forgotten.

        Args:
            statuses: only these; without any, OPEN, COMMITTING and ABORTING.
            age_ms_min: only what was opened, or has ended, so long ago.
            transactional_id_pattern: with a shell's wildcards, as `app-*`; empty: all.
            producer_ids: of these only, as transactional ids have them; none: all.
            tcid: of this coordinator only.
            limit: at most so many of each coordinator.
            on_unanswered: told of each coordinator that does not answer, and why; what the others
                have is returned. Without it the first of these errors is raised.
        Raises:
            LogUnavailable, OutcomeUnknown: a coordinator does not answer in time.
        Source: KIP-664, ListTransactions.
        """
        command = transaction_pb2.CommandListTxns(
            statuses=[int(status) for status in statuses],  # type: ignore[misc]
            age_ms_min=age_ms_min,
            transactional_id_pattern=transactional_id_pattern,
            producer_ids=producer_ids,
            limit=limit,
        )
        found: list[TransactionDescription] = []
        for reply in await self._ask_coordinators(command, tcid, on_unanswered):
            listed = [TransactionDescription.from_wire(one) for one in reply.transactions]
            found += sorted(listed, key=lambda one: (one.ended_at_ms == 0, one.txn_id))
        return found

    async def _ask_coordinators(
        self,
        command: Any,
        tcid: int | None,
        on_unanswered: Callable[[int, MagnetarError], None] | None,
    ) -> list[Any]:
        """The same of all coordinators at once, or of one."""

        async def ask(tcid: int, coordinator: Connection) -> Any:
            try:
                return await coordinator.request(command)
            except (LogUnavailable, OutcomeUnknown) as error:
                if on_unanswered is None:
                    raise
                on_unanswered(tcid, error)
                return None

        coordinators = await self._cluster.coordinators_by_tcid(tcid)
        replies = await asyncio.gather(*(ask(*one) for one in coordinators.items()))
        return [one for one in replies if one is not None]

    async def describe_transaction(self, txn_id: TxnID) -> TransactionDescription:
        """Raises: TxnNotFound, TxnForgotten."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        return TransactionDescription.from_wire(reply.transaction)

    async def transaction_statuses(
        self, txn_ids: Sequence[TxnID]
    ) -> list[TransactionStatus | None]:
        """What coordinators say of many transactions, in order; None where they do not know."""
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def status(txn_id: TxnID) -> TransactionStatus | None:
            async with questions:
                try:
                    return (await self.describe_transaction(txn_id)).status
                except (TxnNotFound, TxnForgotten):
                    return None

        return await asyncio.gather(*(status(one) for one in txn_ids))

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

    async def list_transactional_ids(
        self, pattern: str = "", *, limit: int = 1_000
    ) -> list[TransactionalIdDescription]:
        """Transactional ids of all coordinators.

        Args:
            pattern: with a shell's wildcards, as `app-*`; empty: all.
            limit: at most so many of each coordinator.
        """
        command = transaction_pb2.CommandListTransactionalIds(pattern=pattern, limit=limit)
        found: list[TransactionalIdDescription] = []
        for coordinator in await self._cluster.coordinators():
            reply = await coordinator.request(command)
            found += [TransactionalIdDescription.from_wire(one) for one in reply.descriptions]
        return found

    async def describe_transactional_id(self, transactional_id: str) -> TransactionalIdDescription:
        """Raises: TransactionalIdNotFound. Source: KIP-664, DescribeTransactions."""
        coordinator = await self._cluster.coordinator_for(transactional_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        return TransactionalIdDescription.from_wire(reply.description)

    async def force_terminate(self, transactional_id: str) -> None:
        """Abort what is open in a transactional id, prepared or not, and fence its producer.

        Only the external coordinator of a prepared transaction knows whether that is safe.

        Raises:
            TransactionalIdNotFound: nobody has used it.
            ConcurrentTransactions: it is still ending; it has been fenced.
        Source: KIP-939, forceTerminateTransaction.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        await coordinator.request(
            transaction_pb2.CommandInitProducer(transactional_id=transactional_id)
        )

    async def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        """Who writes to a partition, and what is open there and at its subscriptions.

        Raises:
            TopicNotFound: no such topic or partition.
        Source: KIP-664, DescribeProducers.
        """
        route = await self._cluster.route(topic)
        if not 0 <= partition < route.partition_count:
            raise TopicNotFound(f"{topic} has no partition {partition}")
        reply = await route.connection(partition).request(
            broker_pb2.CommandDescribeProducers(partition=route.partition_name(partition).to_wire())
        )
        name = route.partition_name(partition)
        return [ProducerDescription.from_wire(name, one) for one in reply.producers]

    async def find_hanging(
        self, topic: str | None = None, partition: int | None = None, *, age_ms_min: int = 0
    ) -> list[HangingTransaction]:
        """What is open at participants, and at no coordinator.

        Args:
            topic, partition: only there; everywhere unless given.
            age_ms_min: only what has been open for so long.
        Source: KIP-664, Finding Hanging Transactions.
        """
        topics = [one.topic for one in await self.list_topics()] if topic is None else [topic]
        found: list[HangingTransaction] = []
        for name in topics:
            route = await self._cluster.route(name)
            every = range(route.partition_count) if partition is None else (partition,)
            for number in every:
                producers = await self.describe_producers(name, number)
                found += await self.hanging_among(producers, age_ms_min=age_ms_min)
        return found

    async def hanging_among(
        self, producers: Iterable[ProducerDescription], *, age_ms_min: int = 0
    ) -> list[HangingTransaction]:
        """Those whose transaction is open where they write, and at no coordinator.

        Args:
            age_ms_min: as find_hanging.
        """
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def judged(producer: ProducerDescription) -> HangingTransaction | None:
            async with questions:
                reason = await self._why_hanging(producer)
            return HangingTransaction(producer, reason) if reason else None

        now_ms = self._wall_ms()
        chosen = [
            one for one in producers if one.txn_id is not None and one.open_ms(now_ms) >= age_ms_min
        ]
        every = await asyncio.gather(*(judged(one) for one in chosen))
        return [one for one in every if one is not None]

    async def _why_hanging(self, producer: ProducerDescription) -> str:
        """Empty when its coordinator will end it, or its producer."""
        assert producer.txn_id is not None
        try:
            known = await self.describe_transaction(producer.txn_id)
        except (TxnNotFound, TxnForgotten) as error:
            return f"its coordinator does not know it ({type(error).__name__})"
        if known.status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED):
            return f"its coordinator has ended it: {known.status.name}"
        identity, told_epoch = known.identity, producer.producer_epoch
        # Who writes by hand need not say an epoch.
        if identity is not None and told_epoch not in (NO_EPOCH, identity.producer_epoch):
            return f"its coordinator has it under epoch {identity.producer_epoch}"
        participants: tuple[object, ...] = (*known.partitions, *known.subscriptions)
        if producer.participant not in participants:
            if producer.open_ms(self._wall_ms()) < JOINING_MS:
                return ""  # Its client is about to add it.
            return f"its coordinator has it {known.status.name} without this participant"
        return ""

    async def abort_hanging(self, hanging: ProducerDescription) -> None:
        """Abort a transaction where it hangs; its coordinator vouches that nobody commits it.

        Args:
            hanging: as describe_producers or find_hanging told it: start and epoch have to match.
        Raises:
            InvalidTxnState: it is open or committing at its coordinator, or is not open there, or
                not with this start and epoch. No effect.
            TxnNotFound: no coordinator has ever issued it. No effect.
        Source: KIP-664, Aborting Transactions.
        """
        assert hanging.txn_id is not None
        coordinator = await self._cluster.coordinator_of(hanging.txn_id)
        await coordinator.request(
            transaction_pb2.CommandAbortHangingTxn(
                txn_id=hanging.txn_id.to_wire(),
                partition=hanging.partition.to_wire(),
                subscription=hanging.subscription,
                start_offset=hanging.start_offset,
                producer_epoch=hanging.producer_epoch,
            )
        )

    async def describe_name(self, name: str) -> NameDescription:
        """What is known of a name of sequences."""
        coordinator = await self._cluster.coordinator_for(name)
        reply = await coordinator.request(transaction_pb2.CommandDescribeName(name=name))
        return NameDescription(
            name,
            reply.committed_sequence if reply.has_committed else None,
            reply.open.sequence if reply.HasField("open") else None,
            TxnID.from_wire(reply.open_txn_id) if reply.HasField("open") else None,
            reply.committed_fingerprint or None,
        )

    async def remove_name(self, name: str) -> None:
        """Forget a name: its sequences may then be committed again.

        Raises:
            InvalidArgument: there is none.
            ResourceInUse: a transaction of it is open.
        """
        coordinator = await self._cluster.coordinator_for(name)
        await coordinator.request(transaction_pb2.CommandRemoveName(name=name))

    def _wall_ms(self) -> int:
        return self._cluster.runtime.clock.wall_ms()

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
