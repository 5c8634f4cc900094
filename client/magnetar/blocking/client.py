"""The client without asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

import magnetar
from magnetar import client as asyncio_client
from magnetar.admin.producer_descriptions import (
    HangingTransaction,
    NameDescription,
    ProducerDescription,
)
from magnetar.admin.topic_descriptions import (
    TopicDescription,
    TopicOffsets,
    TopicSummary,
    UncommittedMessage,
)
from magnetar.admin.transaction_descriptions import StoredTransactions, TransactionDescription
from magnetar.blocking.groups import GroupConsumer, OnPartitions, on_a_thread
from magnetar.blocking.loop_thread import Closing, LoopThread
from magnetar.blocking.messaging import Consumer, Producer
from magnetar.blocking.transaction import Transaction
from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.config import Batching, ClientConfig
from magnetar.enums import InitialPosition, SubscriptionType, TransactionAction, TransactionStatus
from magnetar.errors import ClientClosed, UsedAfterFork
from magnetar.link.cluster import ClusterInfo
from magnetar.message import Message, MessageColumns
from magnetar.messaging.dead_letters import DeadLetterPolicy
from magnetar.transactions.participants import TransactionPart
from magnetar_core.batch import Codec
from magnetar_core.clock import Clock
from magnetar_core.ids import TxnID
from magnetar_core.transport import Transport

T = TypeVar("T")


class Client(Closing):
    """See magnetar.Client."""

    def __init__(self, loop: LoopThread, inner: magnetar.Client) -> None:
        self._loop = loop
        self.inner = inner

    def create_producer(
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
        inner = self._loop.wait(
            self.inner.create_producer(
                topic,
                codec=codec,
                batching=batching,
                linger_ms=linger_ms,
                batch_bytes_max=batch_bytes_max,
                batch_messages_max=batch_messages_max,
                in_flight_batches_max=in_flight_batches_max,
                whole_bytes_max=whole_bytes_max,
                message_bytes_max=message_bytes_max,
            )
        )
        return Producer(self._loop, inner)

    def subscribe(
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
        inner = self._loop.wait(
            self.inner.subscribe(
                topic,
                subscription,
                type=type,
                initial_position=initial_position,
                partitions=partitions,
                consumer_name=consumer_name,
                receiver_queue_messages=receiver_queue_messages,
                receiver_queue_bytes=receiver_queue_bytes,
                message_bytes_max=message_bytes_max,
                ack_linger_ms=ack_linger_ms,
                nack_delay_ms=nack_delay_ms,
                nack_delay_ms_max=nack_delay_ms_max,
                dead_letter=dead_letter,
            )
        )
        return Consumer(self._loop, inner)

    def consumer_group(
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
        inner = self._loop.wait(
            self.inner.consumer_group(
                group,
                topics,
                pattern,
                instance_id=instance_id,
                session_timeout_s=session_timeout_s,
                rebalance_timeout_s=rebalance_timeout_s,
                max_poll_interval_s=max_poll_interval_s,
                initial_position=initial_position,
                allow_two_phase_commit=allow_two_phase_commit,
                on_assigned=on_a_thread(on_assigned),
                on_revoked=on_a_thread(on_revoked),
                on_lost=on_a_thread(on_lost),
                receiver_queue_messages=receiver_queue_messages,
                receiver_queue_bytes=receiver_queue_bytes,
                message_bytes_max=message_bytes_max,
                ack_linger_ms=ack_linger_ms,
                nack_delay_ms=nack_delay_ms,
                nack_delay_ms_max=nack_delay_ms_max,
                dead_letter=dead_letter,
            )
        )
        return GroupConsumer(self._loop, inner)

    def begin_transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> Transaction:
        inner = self._loop.wait(self.inner.begin_transaction(timeout_s, lazy=lazy))
        return Transaction(self._loop, inner)

    def begin_named_transaction(
        self,
        name: str,
        sequence: int,
        run_token: str,
        *,
        timeout_s: float = 60.0,
        fingerprint: str = "",
    ) -> Transaction:
        inner = self._loop.wait(
            self.inner.begin_named_transaction(
                name, sequence, run_token, timeout_s=timeout_s, fingerprint=fingerprint
            )
        )
        return Transaction(self._loop, inner)

    def commit_parts(
        self,
        parts: Sequence[TransactionPart],
        *,
        wait_finished: bool = False,
        fingerprint: str = "",
    ) -> TransactionStatus:
        return self._loop.wait(
            self.inner.commit_parts(parts, wait_finished=wait_finished, fingerprint=fingerprint)
        )

    def transactional_producer(
        self,
        transactional_id: str | None = None,
        *,
        two_phase_commit: bool = False,
        timeout_s: float | None = None,
    ) -> TransactionalProducer:
        inner = self._loop.call(
            lambda: self.inner.transactional_producer(
                transactional_id, two_phase_commit=two_phase_commit, timeout_s=timeout_s
            )
        )
        return TransactionalProducer(self._loop, inner)

    def transaction(self, timeout_s: float = 60.0, *, lazy: bool = False) -> Transaction:
        """`with client.transaction() as txn`. Unlike in asyncio it begins at the call."""
        return self.begin_transaction(timeout_s, lazy=lazy)

    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
    ) -> Iterator[Message]:
        for columns in self.read_columns(
            topic, partition, start, end, follow_period_s=follow_period_s
        ):
            yield from columns

    def read_columns(
        self,
        topic: str,
        partition: int = 0,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
        messages_max: int = 10_000,
        bytes_max: int = 4 << 20,
    ) -> Iterator[MessageColumns]:
        pieces = self.inner.read_columns(
            topic,
            partition,
            start,
            end,
            follow_period_s=follow_period_s,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )
        try:
            while (columns := self._loop.wait(_next(pieces))) is not None:
                yield columns
        finally:
            self._loop.wait(pieces.aclose())

    def read_ahead(
        self, topic: str, partition: int, start: int, end: int, *, topic_id: int = 0
    ) -> Iterator[list[MessageColumns]]:
        pieces = self.inner.read_ahead(topic, partition, start, end, topic_id=topic_id)
        try:
            while (columns := self._loop.wait(_next(pieces))) is not None:
                yield columns
        finally:
            self._loop.wait(pieces.aclose())

    def cluster_info(self) -> ClusterInfo:
        return self._loop.wait(self.inner.cluster_info())

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        retention_ms: int = 0,
        retention_bytes: int = 0,
        retain_unconsumed: bool = True,
    ) -> int:
        return self._loop.wait(
            self.inner.create_topic(
                topic,
                partitions=partitions,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                retain_unconsumed=retain_unconsumed,
            )
        )

    def list_topics(self) -> list[TopicSummary]:
        return self._loop.wait(self.inner.list_topics())

    def describe_topic(self, topic: str) -> TopicDescription:
        return self._loop.wait(self.inner.describe_topic(topic))

    def skip_damaged(
        self, topic: str, partition: int = 0, *, dry_run: bool = False
    ) -> list[tuple[int, int]]:
        return self._loop.wait(self.inner.skip_damaged(topic, partition, dry_run=dry_run))

    def list_offsets(
        self,
        topic: str,
        *,
        partitions: Iterable[int] = (),
        append_time_ms: int | None = None,
        topic_id: int = 0,
    ) -> TopicOffsets:
        return self._loop.wait(
            self.inner.list_offsets(
                topic, partitions=partitions, append_time_ms=append_time_ms, topic_id=topic_id
            )
        )

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        self._loop.wait(self.inner.delete_topic(topic, force=force))

    def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        initial_position: InitialPosition | str = InitialPosition.LATEST,
    ) -> None:
        self._loop.wait(
            self.inner.create_subscription(
                topic, subscription, type=type, initial_position=initial_position
            )
        )

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        self._loop.wait(self.inner.unsubscribe(topic, subscription, force=force))

    def seek(
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
        return self._loop.wait(
            self.inner.seek(
                topic,
                subscription,
                offset=offset,
                append_time_ms=append_time_ms,
                position=position,
                partition=partition,
                force=force,
            )
        )

    def peek_uncommitted(
        self,
        topic: str,
        partition: int = 0,
        txn_id: TxnID | None = None,
        *,
        skip: int = 0,
        messages_max: int = 100,
    ) -> list[UncommittedMessage]:
        return self._loop.wait(
            self.inner.peek_uncommitted(
                topic, partition, txn_id, skip=skip, messages_max=messages_max
            )
        )

    def list_transactions(
        self,
        statuses: Iterable[TransactionStatus] = (),
        *,
        age_ms_min: int = 0,
        transactional_id_pattern: str = "",
        producer_ids: Iterable[int] = (),
        tcid: int | None = None,
        limit: int = 1_000,
        on_unanswered: Callable[[int, magnetar.MagnetarError], None] | None = None,
    ) -> list[TransactionDescription]:
        return self._loop.wait(
            self.inner.list_transactions(
                statuses,
                age_ms_min=age_ms_min,
                transactional_id_pattern=transactional_id_pattern,
                producer_ids=producer_ids,
                tcid=tcid,
                limit=limit,
                on_unanswered=on_unanswered,
            )
        )

    def describe_transaction(self, txn_id: TxnID) -> TransactionDescription:
        return self._loop.wait(self.inner.describe_transaction(txn_id))

    def transaction_statuses(self, txn_ids: Sequence[TxnID]) -> list[TransactionStatus | None]:
        return self._loop.wait(self.inner.transaction_statuses(txn_ids))

    def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        return self._loop.wait(self.inner.describe_producers(topic, partition))

    def hanging_among(
        self, producers: Iterable[ProducerDescription], *, age_ms_min: int = 0
    ) -> list[HangingTransaction]:
        return self._loop.wait(self.inner.hanging_among(producers, age_ms_min=age_ms_min))

    def stored_transactions(
        self,
        topic: str,
        partition: int,
        *,
        first_txn_id: TxnID | None = None,
        limit: int = 1_000,
        txn_ids: Iterable[TxnID] = (),
        topic_id: int = 0,
    ) -> StoredTransactions:
        return self._loop.wait(
            self.inner.stored_transactions(
                topic,
                partition,
                first_txn_id=first_txn_id,
                limit=limit,
                txn_ids=txn_ids,
                topic_id=topic_id,
            )
        )

    def end_transaction(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        return self._loop.wait(
            self.inner.end_transaction(txn_id, action, wait_finished=wait_finished)
        )

    def describe_name(self, name: str) -> NameDescription:
        return self._loop.wait(self.inner.describe_name(name))

    def remove_name(self, name: str) -> None:
        self._loop.wait(self.inner.remove_name(name))

    def accept_transaction_loss(self, txn_id: TxnID) -> None:
        self._loop.wait(self.inner.accept_transaction_loss(txn_id))

    def close(self) -> None:
        """Close the client and end its thread. In a forked child: does nothing."""
        try:
            self._loop.check()
        except (UsedAfterFork, ClientClosed):
            return
        try:
            self._loop.wait(self.inner.close())
        finally:
            self._loop.close()


def connect(
    address: str,
    *,
    transport: Callable[[], Transport] | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """See magnetar.connect.

    Args:
        transport: makes the transport, on the client's own thread.
    """
    loop = LoopThread()

    async def work() -> magnetar.Client:
        return await asyncio_client.connect(
            address,
            transport=None if transport is None else transport(),
            clock=clock,
            random=random,
            config=config,
        )

    try:
        return Client(loop, loop.wait(work()))
    except BaseException:
        loop.close()
        raise


async def _next(pieces: AsyncIterator[T]) -> T | None:
    return await anext(pieces, None)
