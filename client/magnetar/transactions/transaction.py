"""A transaction, as users have it.

Source: PIP-31, Public APIs, Transaction#commit and Transaction#abort;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from magnetar.arguments import checked, copied, refusal
from magnetar.enums import TransactionStatus
from magnetar.habits import KnowsHabits
from magnetar.message import Message, MessageColumns
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.topic_producers import TopicProducers
from magnetar.transactions.transaction_part import TransactionPart
from magnetar.transactions.transaction_work import TransactionWork
from magnetar.transactions.txn_send import TxnSend
from magnetar.transactions.writer_protocols import Acknowledging, TopicProducer
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.ids import TxnID

# Finds the client's open consumer of an id; None: there is none.
ConsumerOf = Callable[[int], Acknowledging | None]


class Transaction(KnowsHabits):
    """A transaction. `Client.transaction` or `Client.begin_transaction` makes it.

    As a context manager it commits on exit, and aborts on an exception.

        async with client.transaction(timeout_s=60) as txn:
            await txn.send("invoices", b"invoice 7")
            await txn.ack(message)

    Inside of such a block, a send or an ack of the same client that is given no `txn` raises
    InvalidArgument, and the transaction fails: it would stay if the transaction aborts. Pass
    `txn=None` to do that on purpose. The block covers the task that opened it, and the tasks that
    this task starts inside, until the block is left. Transactions do not nest: an inner block is a
    transaction of its own, which commits or aborts by itself.

    A lazy transaction begins at its coordinator only when it has to: with its second partition, its
    first acknowledgement, or with more messages than fit a batch. Otherwise its messages travel as
    a plain batch, which the broker stores completely or not at all.
    Source: PIP-31, Future Work, Single Partition Transaction.
    """

    def __init__(
        self, work: TransactionWork, producers: TopicProducers, consumer_of: ConsumerOf
    ) -> None:
        """A transaction that has not written anything yet.

        Args:
            work: what the other modules of the SDK use in its place.
            producers: those with which it sends to topics by name.
            consumer_of: returns the client's open consumer of an id; None: there is none.
        """
        self.work = work
        # It closes when the program drops it.
        self._client: object = None
        self._producers = producers
        self._consumer_of = consumer_of

    def __repr__(self) -> str:
        return repr(self.work)

    @property
    def txn_id(self) -> TxnID:
        """The id of the transaction.

        Raises:
            InvalidTxnState: this is a lazy transaction that has not begun.
        """
        return self.work.txn_id

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator knows the transaction. A lazy one may end without that."""
        return self.work.has_begun

    @property
    def timeout_ms(self) -> int:
        """After how many milliseconds the coordinator aborts it; only for a begun transaction."""
        return self.work.timeout_ms

    @property
    def status(self) -> TransactionStatus:
        """The status, as far as this client knows it.

        COMMITTING and ABORTING are decided, and participants carry them out.
        """
        return self.work.status

    @property
    def failure(self) -> MagnetarError | None:
        """The error of the first send or ack that failed; then only abort() is possible."""
        return self.work.failure

    async def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
    ) -> TxnSend:
        """Send a message in the transaction, and wait until the broker has stored it durably.

        The client has a producer with default settings for each topic, which all transactions
        share. For other settings, or to keep the order with the sends of a producer of your own,
        use `producer.send(..., txn=txn)`.

        Args:
            topic: the topic's name.
            value: the content of the message.
            key: messages with the same key go to the same partition, and stay in order.
            properties: names and texts that travel with the message.
            event_time_ms: the application's own time, in milliseconds since the Unix epoch.
            partition: the partition's number; by default the key decides.
        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
            TopicNotFound: there is no such topic. The transaction has failed.
            MagnetarError: as Producer.send. The transaction has failed.
        """
        # The caller may change what it gave while the topic is looked up.
        value, key, properties = copied(value), copied(key), copied(properties)
        producer = await self._producer(topic)
        sent = await producer.send(
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
            txn=self,
        )
        assert isinstance(sent, TxnSend)
        return sent

    async def enqueue(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Send a message in the transaction without waiting; commit() raises if it fails.

        The arguments are those of `send`.

        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
            MagnetarError: as Producer.enqueue. The transaction has failed.
        """
        value, key, properties = copied(value), copied(key), copied(properties)
        producer = await self._producer(topic)
        await producer.enqueue(
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
            txn=self,
        )

    async def ack(self, message: Message) -> None:
        """Acknowledge a message in the transaction, at the consumer that received it.

        The message counts as consumed if the transaction commits, and comes again if it aborts.
        There is no `nack` in a transaction: give a message back with the consumer's `nack`, or
        abort.

        Args:
            message: a message that a consumer of this client has received.
        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
            InvalidArgument: no open consumer of this client has received the message. The
                transaction has failed.
            TransactionConflict: another transaction has acknowledged the message, or it is
                acknowledged already. The transaction has failed; abort it.
            MagnetarError: as Consumer.ack.
        """
        await self.ack_many((message,))

    async def ack_many(self, messages: Iterable[Message] | MessageColumns) -> None:
        """Acknowledge messages in the transaction, with a single command for each partition.

        Args:
            messages: messages of one consumer, or of several.
        Raises:
            MagnetarError: as ack.
        """
        self.work.require_open()
        try:
            if isinstance(messages, MessageColumns):
                consumer = self._consumer(Message(messages.batch, messages.start))
                await consumer.ack_many(messages, txn=self)
                return
            if not isinstance(messages, Iterable):
                raise refusal("messages", messages, "messages, or MessageColumns")
            by_consumer: dict[Acknowledging, list[Message]] = {}
            for message in messages:
                by_consumer.setdefault(self._consumer(message), []).append(message)
            for consumer, its_messages in by_consumer.items():
                await consumer.ack_many(its_messages, txn=self)
        except BaseException as error:
            self.work.fail(error)
            raise

    async def ack_cumulative(self, message: Message) -> None:
        """Acknowledge in the transaction what its consumer received of a partition up to a message.

        Args:
            message: the last message to acknowledge.
        Raises:
            InvalidArgument: the subscription is SHARED or KEY_SHARED.
            MagnetarError: as ack.
        """
        self.work.require_open()
        await self._consumer(message).ack_cumulative(message, txn=self)

    @checked
    async def commit(self, *, wait_finished: bool = False, fingerprint: str = "") -> None:
        """Commit the transaction: all of its messages and acks count, or none of them.

        To call it again is harmless. After OutcomeUnknown, also of an abort behind a commit, call
        it again to learn the outcome.

        Args:
            wait_finished: whether to wait until every participant has carried out the commit. By
                default the call returns when the decision is durable, and readers may see the
                messages a moment later.
            fingerprint: for a named sequence, the fingerprint of its content; see
                Client.begin_named_transaction().
        Raises:
            CommitRefused: a send or an ack had failed, or its call did not succeed for any reason;
                the transaction was aborted. The details name the topic and the partition.
            InvalidTxnState: the transaction was aborted by its timeout, by an administrator, or by
                abort(). Or another client or an administrator has committed it, although a send
                or an ack had failed.
            OutcomeUnknown: no answer came in time. The transaction may be committed.
            TxnForgotten: the transaction has ended, and its outcome is no longer kept.
            TxnNotFound: as TxnForgotten.
        Source: PIP-31, Transaction#commit.
        """
        await self.work.commit(wait_finished=wait_finished, fingerprint=fingerprint)

    async def leave(self) -> TransactionPart:
        """Confirm all sends and acks of this client, for another client to commit.

        The transaction stays open, and takes nothing more from this client.

        Returns:
            The sends and acks of this client. The other client gives them to
            Client.commit_parts().
        Raises:
            CommitRefused: a send or an ack had failed, so nothing of this client counts. The
                transaction stays open, and the work of other clients in it stands.
            InvalidTxnState: the transaction has ended, or is not open.
        """
        return await self.work.leave()

    def withdraw(self) -> None:
        """Give up the part of this client, when several clients share the transaction.

        Nothing that this client has sent or acknowledged counts. The transaction stays open for the
        other clients, and their work stands. The call is harmless when the transaction has ended.
        """
        self.work.withdraw()

    async def abort(self) -> None:
        """Abort the transaction: none of its messages and acks counts.

        The call is harmless when the transaction is aborted already.

        Raises:
            InvalidTxnState: the transaction is committed. No effect.
            OutcomeUnknown: no answer came in time. The coordinator aborts the transaction when its
                time is up.
            TxnForgotten: the transaction has ended, and its outcome is no longer kept.
            TxnNotFound: as TxnForgotten.
        Source: PIP-31, Transaction#abort.
        """
        await self.work.abort()

    async def __aenter__(self) -> Transaction:
        self.work.open_block()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.work.end_block(error)

    async def _producer(self, topic: str) -> TopicProducer:
        self.work.require_open()
        try:
            return await self._producers.of(topic)
        except BaseException as error:
            self.work.fail(error, FailedCall(topic if isinstance(topic, str) else ""))
            raise

    def _consumer(self, message: object) -> Acknowledging:
        """Return the consumer that has received a message.

        Raises:
            InvalidArgument: it is not known, or not open. The transaction has failed.
        """
        error: InvalidArgument
        if isinstance(message, Message):
            consumer = self._consumer_of(message.batch.consumer_id)
            if consumer is not None:
                return consumer
            error = InvalidArgument(
                f"{message!r} was received by a reader, by another client, or by a consumer that"
                " is closed: only a consumer of the transaction's client acknowledges"
            )
        else:
            error = InvalidArgument(
                f"{message!r} is not a message, and does not say which consumer received it:"
                " pass the message, or use consumer.ack(..., txn=txn)"
            )
        self.work.doom(error)
        raise error
