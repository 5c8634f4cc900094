"""The client: begins everything, and closes everything that it began."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from magnetar.admin.admin_client import AdminClient
from magnetar.config import (
    Batching,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    codec_of,
    with_defaults,
)
from magnetar.enums import InitialPosition, SubscriptionType, TransactionStatus
from magnetar.errors import ClientClosed
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.open_consumers import OpenConsumers
from magnetar.groups.settings import Callbacks, GroupSettings, OnPartitions
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.messaging.consumer import Consumer
from magnetar.messaging.dead_letters import DeadLetterPolicy
from magnetar.messaging.open_producers import OpenProducers
from magnetar.messaging.producer import Producer
from magnetar.messaging.read_ahead import read_ahead
from magnetar.messaging.reader import read_columns
from magnetar.moved_names import missing
from magnetar.transactions.open_transactions import OpenTransactions
from magnetar.transactions.participants import TransactionPart
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_scope import TransactionScope
from magnetar.transactions.transactional_producer import TransactionalProducer
from magnetar_core.batch import Codec
from magnetar_core.errors import Gone


class Client:
    """Makes producers, consumers and transactions, and closes them. Made by `connect`.

    Attributes:
        admin: topics, subscriptions, groups, transactions, transactional ids and names: what an
            administrator does.
    """

    def __init__(self, address: str, runtime: Runtime) -> None:
        self._runtime = runtime
        self._cluster = Cluster(address, runtime)
        self._closed = False
        self._transactions = OpenTransactions(self._cluster)
        self._producers = OpenProducers(self._cluster, self._transactions.begin)
        self._consumers = OpenConsumers(self._cluster, self._transactions, self._producers.budget)
        self.admin = AdminClient(self._cluster)

    @property
    def config(self) -> ClientConfig:
        """The settings that it was made with."""
        return self._runtime.config

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise missing(self, name)

    async def create_producer(
        self,
        topic: str,
        *,
        codec: Codec | str = Codec.NONE,
        batching: Batching | str = Batching.MIXED,
        linger_ms: float | None = None,
        batch_bytes_max: int | None = None,
        batch_messages_max: int | None = None,
        in_flight_batches_max: int | None = None,
        whole_bytes_max: int | None = None,
        message_bytes_max: int | None = None,
    ) -> Producer:
        """Make a producer for a topic. See ProducerConfig for the settings.

        Args:
            codec: "none", "zstd" or "lz4".
            batching: "mixed", or "by_key" for batches of one key each, which brokers of key_shared
                subscriptions need not open.
        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: a setting makes no sense.
        """
        self._require_open()
        config = with_defaults(
            ProducerConfig,
            codec=codec_of(codec),
            batching=Batching.of(batching),
            linger_ms=linger_ms,
            batch_bytes_max=batch_bytes_max,
            batch_messages_max=batch_messages_max,
            in_flight_batches_max=in_flight_batches_max,
            whole_bytes_max=whole_bytes_max,
            message_bytes_max=message_bytes_max,
        )
        return await self._producers.make(topic, config)

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType | str = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
        partitions: Sequence[int] | None = None,
        consumer_name: str = "",
        receiver_queue_messages: int | None = None,
        receiver_queue_bytes: int | None = None,
        message_bytes_max: int | None = None,
        ack_linger_ms: float | None = None,
        nack_delay_ms: float | None = None,
        nack_delay_ms_max: float | None = None,
        dead_letter: DeadLetterPolicy | None = None,
    ) -> Consumer:
        """Attach a consumer, creating the subscription when it is absent.

        Args:
            type: "exclusive", "shared", "failover", or "key_shared": shared, with the order of each
                key kept. Messages without a key then count as those of one key.
            initial_position: where a new subscription begins, "earliest" or "latest".
            partitions: only these; all of the topic otherwise.
            consumer_name: FAILOVER puts consumers in the order of their names. Random unless given.
            dead_letter: messages that come back too often move to another topic, exactly once.
        Raises:
            TopicNotFound: there is no such topic.
            ConsumerBusy: the exclusive subscription has a consumer, still after the operation
                timeout.
            SubscriptionExists: of another type.
        """
        self._require_open()
        config = with_defaults(
            ConsumerConfig,
            receiver_queue_messages=receiver_queue_messages,
            receiver_queue_bytes=receiver_queue_bytes,
            message_bytes_max=message_bytes_max,
            ack_linger_ms=ack_linger_ms,
            nack_delay_ms=nack_delay_ms,
            nack_delay_ms_max=nack_delay_ms_max,
        )
        return await self._consumers.subscribe(
            topic,
            subscription,
            type,
            initial_position,
            partitions,
            consumer_name,
            config,
            dead_letter,
        )

    async def consumer_group(
        self,
        group: str,
        topics: str | Sequence[str] | None = None,
        pattern: str | None = None,
        *,
        instance_id: str = "",
        session_timeout_s: float | None = None,
        rebalance_timeout_s: float | None = None,
        max_poll_interval_s: float = 300.0,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
        allow_two_phase_commit: bool = False,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        receiver_queue_messages: int | None = None,
        receiver_queue_bytes: int | None = None,
        message_bytes_max: int | None = None,
        ack_linger_ms: float | None = None,
        nack_delay_ms: float | None = None,
        nack_delay_ms_max: float | None = None,
        dead_letter: DeadLetterPolicy | None = None,
    ) -> GroupConsumer:
        """Join a group, whose members share the partitions of topics; made when it is absent.

        Args:
            topics: one or several that exist.
            pattern: with a shell's wildcards, as `orders-*`; topics that are made later count too.
            instance_id: makes the member static: a restart within the session timeout moves no
                partition, and whoever joins under the same id takes its place (KIP-345).
            session_timeout_s: without a sign of life for so long, others take over. None: the
                broker's default, as for the next one.
            rebalance_timeout_s: how long the application may keep a partition that is asked back.
            max_poll_interval_s: seconds between calls of receive; an application that takes longer
                leaves the group, and joins again with its next receive.
            initial_position: where partitions begin that the group has not read.
            allow_two_phase_commit: acks may be part of transactions that never expire, and hold a
                partition for as long as they like. All members say the same.
            on_assigned, on_revoked, on_lost: functions or coroutine functions that are given a list
                of TopicPartition: before anything of them is received; before they are given back;
                after they were given to others. What they raise, the next receive raises.
            dead_letter: as of subscribe; with several topics it has to name its own.
        Raises:
            TopicNotFound: one of the topics does not exist.
            InvalidArgument: no topics and no pattern, or a setting makes no sense.
            LogUnavailable: nobody answers in time.
        Source: KIP-447; KIP-848; docs/design/0003-groups.md.
        """
        self._require_open()
        config = with_defaults(
            ConsumerConfig,
            receiver_queue_messages=receiver_queue_messages,
            receiver_queue_bytes=receiver_queue_bytes,
            message_bytes_max=message_bytes_max,
            ack_linger_ms=ack_linger_ms,
            nack_delay_ms=nack_delay_ms,
            nack_delay_ms_max=nack_delay_ms_max,
        )
        settings = GroupSettings(
            group=group,
            topics=(topics,) if isinstance(topics, str) else tuple(topics or ()),
            pattern=pattern or "",
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
            initial_position=InitialPosition.of(initial_position),
            allow_two_phase_commit=allow_two_phase_commit,
        )
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        return await self._consumers.join(settings, callbacks, config, dead_letter)

    async def begin_transaction(
        self, timeout_s: float = 60.0, *, lazy: bool = False
    ) -> Transaction:
        """Open a transaction at any live coordinator.

        Args:
            timeout_s: seconds until the coordinator aborts it by itself.
            lazy: begin it only when it has to be one: with a second partition, an acknowledgement,
                or more than fits a batch. Until then it has no TxnID, and does not expire; without
                any of these it ends as one plain batch, and no coordinator is asked.
        Raises:
            LogUnavailable: no coordinator answers. No effect.
            InvalidArgument, QuotaExceeded: longer than the coordinator allows, or too many.
        Source: PIP-31, Public APIs, TransactionBuilder#build.
        """
        self._require_open()
        return await self._transactions.begin(timeout_s, lazy=lazy)

    async def begin_named_transaction(
        self,
        name: str,
        sequence: int,
        run_token: str,
        *,
        timeout_s: float = 60.0,
        fingerprint: str = "",
    ) -> Transaction:
        """Join or open the transaction of a piece of work that is to count once.

        Everybody who brings the same token gets the same transaction, whichever client it is; with
        another token, what an earlier run left open is aborted first.

        Its commit() counts what this client did. Where several clients take part, each leaves with
        Transaction.leave(), and one of them calls commit_parts().

        Args:
            sequence: rises with each piece of work, as a batch's id or a checkpoint's.
            run_token: of this attempt at it.
            fingerprint: a text that is the same for the same content and for no other, as a digest
                of what the work consumes: it tells a repeat from other work under the same number.
                Whoever learns it later gives it to commit() or commit_parts().
        Raises:
            SequenceCommitted: it has been done. No effect; skip it. It has the fingerprint that was
                kept, for whoever did not give one.
            SequenceDiffers: another content has been committed. No effect; do not skip it.
            SequenceTooOld: so has a later one. No effect.
            InvalidArgument: no name, token or fingerprint. No effect.
        """
        self._require_open()
        return await self._transactions.begin_named(
            name, sequence, run_token, timeout_s, fingerprint
        )

    async def commit_parts(
        self,
        parts: Sequence[TransactionPart],
        *,
        wait_finished: bool = False,
        fingerprint: str = "",
    ) -> TransactionStatus:
        """Commit what these clients have done in a transaction, and discard what others did.

        Args:
            parts: what Transaction.leave() gave each of them.
            wait_finished: return only when every participant has carried it out.
            fingerprint: of a named sequence's content: see begin_named_transaction().
        Raises:
            InvalidArgument: no parts, or of several transactions. No effect.
            InvalidTxnState: it was aborted.
            OutcomeUnknown: no answer in time; ask again.
        """
        self._require_open()
        return await self._transactions.commit_parts(parts, wait_finished, fingerprint)

    def transactional_producer(
        self,
        transactional_id: str | None = None,
        *,
        two_phase_commit: bool = False,
        timeout_s: float | None = None,
    ) -> TransactionalProducer:
        """A producer with one transaction at a time; call its init() or init_transactions() first.

        Args:
            transactional_id: its transactions outlive it, and whoever comes with the same id takes
                its place. None: a group's consumer alone says what counts, and nobody is fenced
                by name; any coordinator that is alive takes each transaction.
            two_phase_commit: its transactions never expire; the coordinator has to allow it.
            timeout_s: until the coordinator aborts one; not with two_phase_commit.
        Raises:
            InvalidArgument: two_phase_commit with a timeout, or without a transactional id.
        """
        self._require_open()
        return TransactionalProducer(
            self._transactions,
            self.create_producer,
            transactional_id,
            two_phase_commit=two_phase_commit,
            timeout_s=timeout_s,
        )

    def transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> TransactionScope:
        """`async with client.transaction() as txn`: commits on exit, aborts on an exception."""
        return TransactionScope(lambda: self.begin_transaction(timeout_s, lazy=lazy))

    async def read(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Committed messages from one offset to another, without a subscription.

        Args:
            end: the first offset that is not wanted; None reads to the end that the partition has
                when the reader gets there.
            follow_period_s: wait at the end for more, asking so often.
        Raises:
            TopicNotFound: there is no such topic.
            OutOfRange: retention removed what lies at `start`.
        """
        pieces = self.read_columns(topic, partition, start, end, follow_period_s=follow_period_s)
        # Who stops in the middle ends the reading behind it, too.
        async with aclosing(pieces):
            async for columns in pieces:
                for message in columns:
                    yield message

    async def read_columns(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
        messages_max: int = 10_000,
        bytes_max: int = 4 << 20,
    ) -> AsyncGenerator[MessageColumns, None]:
        """As read, without an object per message: for bulk work."""
        self._require_open()
        pieces = read_columns(
            await self._cluster.route(topic),
            partition,
            start,
            end,
            follow_period_s=follow_period_s,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )
        async with aclosing(pieces):
            async for columns in pieces:
                yield columns

    async def read_ahead(
        self, topic: str, partition: int, start: int, end: int, *, topic_id: int = 0
    ) -> AsyncGenerator[list[MessageColumns], None]:
        """A range of a partition in bulk: see magnetar.messaging.read_ahead.

        Args:
            topic_id: of the topic that is meant; 0: whichever has the name now.
        Raises:
            Gone: the topic of that name has another id.
        """
        self._require_open()
        route = await self._cluster.route(topic)
        if topic_id not in (0, route.topic_id):
            raise Gone(f"topic {topic!r} of id {topic_id} was deleted; it has id {route.topic_id}")
        async with aclosing(read_ahead(route, partition, start, end)) as pieces:
            async for columns in pieces:
                yield columns

    async def close(self) -> None:
        """Flush producers, abort what is open, leave subscriptions, end all links.

        Bounded by close_timeout_ms for each producer and consumer, and for all transactions
        together; failures are logged.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._transactions.abort_all()
            await self._producers.close_all()
            await self._consumers.close_all()
        finally:
            self._cluster.close()
            await self._runtime.cancel_all()
            await self._runtime.transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")
