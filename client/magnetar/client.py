"""The client: makes producers, consumers and transactions, and closes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from magnetar.admin.admin_client import AdminClient
from magnetar.arguments import checked, enum_member
from magnetar.config import (
    Batching,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    with_defaults,
)
from magnetar.enums import (
    BatchingName,
    CodecName,
    InitialPosition,
    InitialPositionName,
    SubscriptionType,
    SubscriptionTypeName,
    TransactionStatus,
)
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.settings import Callbacks, GroupSettings, OnPartitions
from magnetar.link.cluster import Cluster
from magnetar.messaging.consuming.consumer import Consumer
from magnetar.messaging.consuming.dead_letters import DeadLetterPolicy
from magnetar.messaging.sending.producer import Producer
from magnetar.open_client import OpenClient
from magnetar.readings import Readings
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_part import TransactionPart
from magnetar.transactions.transaction_scope import TransactionScope
from magnetar.transactions.transactional_producer import TransactionalProducer
from magnetar_core.batch import Codec

MadeT = TypeVar("MadeT", Producer, Consumer, GroupConsumer, Transaction)


class Client(Readings):
    """A connection to a cluster. `connect` makes it.

    A client belongs to the event loop in which it was made. Close it, or use it as a context
    manager.

        async with await magnetar.connect("127.0.0.1:6650") as client:
            producer = await client.create_producer("orders")
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._opened = OpenClient(cluster)
        self._transactions = self._opened.transactions

    def __del__(self) -> None:
        self._opened.drop(self)

    @property
    def admin(self) -> AdminClient:
        """Calls of administrators."""
        return AdminClient(self._cluster, self)

    @property
    def config(self) -> ClientConfig:
        """The client's settings."""
        return self._runtime.config

    @checked
    async def create_producer(
        self,
        topic: str,
        *,
        codec: Codec | CodecName = Codec.NONE,
        batching: Batching | BatchingName = Batching.MIXED,
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
            InvalidArgument: a setting is not valid.
        """
        self._require_open()
        config = with_defaults(
            ProducerConfig,
            codec=enum_member("codec", Codec, codec),
            batching=enum_member("batching", Batching, batching),
            linger_ms=linger_ms,
            batch_bytes_max=batch_bytes_max,
            batch_messages_max=batch_messages_max,
            in_flight_batches_max=in_flight_batches_max,
            whole_bytes_max=whole_bytes_max,
            message_bytes_max=message_bytes_max,
        )
        return self._kept_by(await self._opened.producers.make(topic, config))

    @checked
    async def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType | SubscriptionTypeName = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | InitialPositionName = InitialPosition.LATEST,
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
        consumer = await self._opened.consumers.subscribe(
            topic,
            subscription,
            type,
            initial_position,
            partitions,
            consumer_name,
            config,
            dead_letter,
        )
        return self._kept_by(consumer)

    @checked
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
        initial_position: InitialPosition | InitialPositionName = InitialPosition.LATEST,
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
                partition, and a member that joins with the same id takes its place (KIP-345).
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
                after they were given to others. The next receive raises their exceptions.
            dead_letter: as of subscribe; with several topics it has to name its own.
        Raises:
            TopicNotFound: one of the topics does not exist.
            InvalidArgument: no topics and no pattern, or a setting is not valid.
            LogUnavailable: no broker answers in time.
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
            topics=(topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics or ())),
            pattern=pattern or "",
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
            initial_position=enum_member("initial_position", InitialPosition, initial_position),
            allow_two_phase_commit=allow_two_phase_commit,
        )
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        return self._kept_by(
            await self._opened.consumers.join(settings, callbacks, config, dead_letter)
        )

    @checked
    async def begin_transaction(
        self, timeout_s: float = 60.0, *, lazy: bool = False
    ) -> Transaction:
        """Begin a transaction at a coordinator that answers.

        Args:
            timeout_s: after how many seconds the coordinator aborts the transaction by itself.
            lazy: whether to begin it only when it has to be a transaction: with a second partition,
                an acknowledgement, or more messages than fit a batch. Until then it has no TxnID
                and does not expire. Otherwise it ends as a plain batch, and no coordinator is
                asked.
        Raises:
            LogUnavailable: no coordinator answers. No effect.
            InvalidArgument: the timeout is longer than the coordinator allows. No effect.
            QuotaExceeded: too many transactions are open. No effect.
        Source: PIP-31, Public APIs, TransactionBuilder#build.
        """
        self._require_open()
        return self._kept_by(await self._transactions.begin(timeout_s, lazy=lazy))

    @checked
    async def begin_named_transaction(
        self,
        name: str,
        sequence: int,
        run_token: str,
        *,
        timeout_s: float = 60.0,
        fingerprint: str = "",
    ) -> Transaction:
        """Join or begin the transaction of a piece of work that must count once.

        All clients that use the same token get the same transaction. If an earlier run, with
        another token, has left a transaction open, that is aborted first.

        commit() counts what this client did. If several clients take part, each leaves with
        Transaction.leave(), and one of them calls commit_parts().

        Args:
            name: the name of the sequence.
            sequence: rises with each piece of work, like the id of a batch or a checkpoint.
            run_token: identifies this attempt at the work.
            timeout_s: after how many seconds the coordinator aborts the transaction by itself.
            fingerprint: a text that is the same for the same content and for no other, such as a
                digest of what the work consumes. It distinguishes a repeat from other work with the
                same number. It may also be given to commit() or commit_parts().
        Raises:
            SequenceCommitted: the work is committed already. No effect; skip it. The error has the
                stored fingerprint.
            SequenceDiffers: work with another content is committed. No effect; do not skip it.
            SequenceTooOld: later work is committed already. No effect.
            InvalidArgument: name, token or fingerprint is not allowed. No effect.
        """
        self._require_open()
        return self._kept_by(
            await self._transactions.begin_named(name, sequence, run_token, timeout_s, fingerprint)
        )

    @checked
    async def commit_parts(
        self,
        parts: Sequence[TransactionPart],
        *,
        wait_finished: bool = False,
        fingerprint: str = "",
    ) -> TransactionStatus:
        """Commit the work of several clients in a transaction, and discard that of others.

        Args:
            parts: the results of Transaction.leave() in each client.
            wait_finished: whether to wait until every participant has carried out the commit.
            fingerprint: for a named sequence, the fingerprint of its content; see
                begin_named_transaction().
        Raises:
            InvalidArgument: there are no parts, or parts of several transactions. No effect.
            InvalidTxnState: the transaction was aborted.
            OutcomeUnknown: no answer came in time; call it again.
        """
        self._require_open()
        return await self._transactions.commit_parts(parts, wait_finished, fingerprint)

    @checked
    def transactional_producer(
        self,
        transactional_id: str | None = None,
        *,
        two_phase_commit: bool = False,
        timeout_s: float | None = None,
    ) -> TransactionalProducer:
        """Return a producer for transactions. First call its init() or init_transactions().

        Args:
            transactional_id: identifies the producer across restarts: an instance with the same id
                takes the place of the instance before. With None, only a group's consumer decides
                what counts, and any coordinator that answers takes each transaction.
            two_phase_commit: whether its transactions never expire; the coordinator must allow it.
            timeout_s: after how many seconds the coordinator aborts a transaction; not with
                two_phase_commit.
        Raises:
            InvalidArgument: two_phase_commit is used with a timeout, or without a transactional id.
        """
        self._require_open()
        return TransactionalProducer(
            self._transactions,
            self.create_producer,
            transactional_id,
            two_phase_commit=two_phase_commit,
            timeout_s=timeout_s,
        )

    @checked
    def transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> TransactionScope:
        """Begin a transaction with `async with`; it commits on exit, and aborts on an exception.

            async with client.transaction(timeout_s=60) as txn:
                await txn.send("invoices", b"invoice 7")
                await txn.ack(message)

        Inside, a send or an ack of this client has to say `txn=None` if it is not part of it; see
        Transaction. The arguments and errors are those of begin_transaction() and
        Transaction.commit().
        """
        return TransactionScope(lambda: self.begin_transaction(timeout_s, lazy=lazy))

    async def close(self) -> None:
        """Flush producers, abort open transactions, leave subscriptions, and close all links.

        This takes close_timeout_ms at most for each producer and consumer, and for all transactions
        together. Failures are logged.
        """
        self._runtime.require_loop()
        await self._opened.close()

    def _kept_by(self, made: MadeT) -> MadeT:
        """Let an object refer to the client, which closes when the program drops both."""
        made._client = self
        return made

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
