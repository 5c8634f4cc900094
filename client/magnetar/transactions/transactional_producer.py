"""A producer that has one transaction at a time, and may outlive it.

With a transactional id its transactions survive it, as two-phase commit with another system needs;
bound to a group's consumer, it consumes and produces exactly once.
Source: KIP-939, KafkaProducer API Changes; KIP-447; docs/design/0002-two-phase-commit.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from magnetar.arguments import check_of, checked
from magnetar.enums import TransactionStatus
from magnetar.habits import KnowsHabits
from magnetar.link.connection_base import ConnectionBase
from magnetar.message import Message
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.open_transactions import OpenTransactions
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar.transactions.producer_state import MACHINE, require_call
from magnetar.transactions.producer_state import ProducerEvent as Event
from magnetar.transactions.producer_state import ProducerState as State
from magnetar.transactions.topic_producers import TopicProducers
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.txn_send import TxnSend
from magnetar.transactions.writer_protocols import Acknowledging, TopicProducer
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    ProducerFenced,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.wire import common_pb2, transaction_pb2

log = logging.getLogger("magnetar")

TIMEOUT_S_DEFAULT = 60.0

_check_consumer = check_of(Acknowledging)


@runtime_checkable
class Member(Protocol):
    """A consumer that is a member of a group: magnetar.GroupConsumer."""

    async def joined(self, timeout_s: float | None = None) -> int:
        """Wait until the consumer is a member; see GroupConsumer.joined."""
        ...

    def redeliver(self) -> None:
        """Let messages come again; see GroupConsumer.redeliver."""
        ...

    async def ack_offsets(self, offsets: Mapping[TopicPartition, int], *, txn: Transaction) -> None:
        """Acknowledge up to offsets; see GroupConsumer.ack_offsets."""
        ...


class TransactionalProducer(KnowsHabits):
    """Sends and acknowledges in consecutive transactions, as Kafka's transactional producer does.

    `Client.transactional_producer` makes it. It has a single transaction at a time, and must not be
    used by several tasks at once.

        producer = client.transactional_producer("billing-1")
        await producer.init()
        await producer.begin()
        await producer.send("invoices", b"invoice 7")
        await producer.commit()

    Between begin() and commit() there is no block as that of `Client.transaction`: sends and acks
    by other objects of the client are plain, unless they are given `txn=producer.transaction`.
    """

    def __init__(
        self,
        transactions: OpenTransactions,
        make_producer: Callable[[str], Awaitable[TopicProducer]],
        transactional_id: str | None,
        *,
        two_phase_commit: bool,
        timeout_s: float | None,
    ) -> None:
        if two_phase_commit and not transactional_id:
            raise InvalidArgument("two-phase commit needs a transactional id, to find it again")
        if transactional_id == "":
            raise InvalidArgument("a transactional id has at least one character")
        if two_phase_commit and timeout_s is not None:
            raise InvalidArgument(
                "with two-phase commit a transaction never expires: leave timeout_s out"
            )
        self.transactional_id = transactional_id
        self.two_phase_commit = two_phase_commit
        self._transactions = transactions
        # Of its own: its transactions follow each other, and no others.
        self._producers = TopicProducers(transactions.runtime, make_producer)
        self._timeout_s = timeout_s
        # Without an id there is nothing to take over.
        self._state = State.NEW if transactional_id else State.READY
        self._coordinator: ConnectionBase | None = None
        self._identity = ProducerIdentity(transactional_id or "", -1, -1)
        self._consumer: Member | None = None
        self._transaction: Transaction | None = None
        # The prepared transaction, of this instance or of the instance before.
        self._prepared = PreparedTxnState()

    @property
    def identity(self) -> ProducerIdentity:
        """The transactional id, with the producer id and epoch; both are -1 before init()."""
        return self._identity

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that this instance has begun, while it is open or prepared."""
        return self._transaction

    @checked
    async def init(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Take over the transactional id. The instance that had it before is fenced.

        Args:
            keep_prepared: whether to keep the open transaction of the instance before, for
                complete(). Otherwise it is aborted.
        Returns:
            The transaction that was kept; an empty state if there was none.
        Raises:
            TransactionalIdAuthorizationFailed: the coordinator does not allow two-phase commit.
            InvalidTxnState: a transaction of this instance is open; or this producer has no
                two-phase commit, and would abort a transaction that has it and may be prepared.
        Source: KIP-939, initTransactions.
        """
        self._require("init")
        if self.transactional_id is None:
            raise InvalidTxnState("init() needs a transactional id; without one, just begin()")
        return await self._init(self.transactional_id, keep_prepared=keep_prepared)

    @checked
    async def init_transactions(self, consumer: Member) -> None:
        """Connect the producer with a consumer of a group, whose messages it acknowledges.

        Waits until the consumer is a member of its group. The call may be repeated at any time: it
        aborts the open transaction, takes the transactional id over again, and lets the consumer
        receive again, in order, the messages that are not acknowledged. So call it after a batch
        has failed. After ProducerFenced it is necessary.

        Args:
            consumer: the consumer that `Client.consumer_group` has made.
        Raises:
            FencedInstance: a newer member has the consumer's instance id.
            TransactionalIdAuthorizationFailed: the coordinator does not allow two-phase commit.
        Source: KIP-447, initTransactions.
        """
        self._require("init_transactions")
        self._consumer = consumer
        # First of all: a caller may cancel what follows, and nothing is open then.
        self._move(Event.RESTARTED)
        await self._abandon()
        await consumer.joined()
        if self.transactional_id is not None:
            await self._init(self.transactional_id, keep_prepared=False)
        self._prepared = PreparedTxnState()
        self._move(Event.INITIALISED)
        consumer.redeliver()

    async def _abandon(self) -> None:
        """Abort the open transaction, as far as that is possible."""
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        try:
            await transaction.abort()
        except (InvalidTxnState, ProducerFenced, TxnForgotten, TxnNotFound) as error:
            # It was committed after all, or another client has ended it.
            log.info("%r was not aborted: %s", transaction, error)
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            # With an id, taking it over ends it; without, the coordinator does, in time.
            log.info("%r is left to its coordinator: %s", transaction, error)

    async def _init(self, transactional_id: str, *, keep_prepared: bool) -> PreparedTxnState:
        self._coordinator = await self._transactions.coordinator_for(transactional_id)
        reply = await self._coordinator.request(
            transaction_pb2.CommandInitProducer(
                transactional_id=transactional_id,
                txn_timeout_ms=int((self._timeout_s or 0) * 1000),
                enable_2pc=self.two_phase_commit,
                keep_prepared=keep_prepared,
            )
        )
        self._identity = ProducerIdentity(transactional_id, reply.producer_id, reply.producer_epoch)
        if not reply.HasField("ongoing_txn_id"):
            self._prepared = PreparedTxnState()
            # There is nothing to complete.
            self._move(Event.KEPT if keep_prepared else Event.INITIALISED)
            return self._prepared
        self._prepared = PreparedTxnState(
            reply.ongoing_producer_id,
            reply.ongoing_producer_epoch,
            TxnID.from_wire(reply.ongoing_txn_id),
        )
        self._move(Event.KEPT)
        return self._prepared

    async def begin(self) -> None:
        """Begin a transaction.

        Raises:
            ProducerFenced: another instance has taken over the transactional id.
            InvalidTxnState: a transaction is open already.
        """
        self._require("begin")
        if self.transactional_id is None:
            self._transaction = await self._transactions.begin(
                TIMEOUT_S_DEFAULT if self._timeout_s is None else self._timeout_s,
                producers=self._producers,
            )
            self._move(Event.BEGUN)
            return
        try:
            self._transaction = await self._begin_with_newest_pair()
        except ProducerFenced:
            self._move(Event.FENCED)
            raise
        self._move(Event.BEGUN)

    async def _begin_with_newest_pair(self) -> Transaction:
        """Begin a transaction, also if the last one ended without telling this producer its pair.

        That happens when its timeout ended it, or when the answer was lost and an inquiry told the
        outcome. Source: KIP-588.
        """
        assert self._coordinator is not None
        while True:
            try:
                return await self._transactions.begin_as(
                    self._identity, self._coordinator, self._producers
                )
            except InvalidTxnState as error:
                following = self._identity.next_in(error.details)
                if following is None:
                    raise
                self._identity = following

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
    ) -> TxnSend:
        """Send a message in the transaction, and wait until the broker has stored it durably.

        Args:
            topic: the topic's name.
            value: the content of the message.
            key: messages with the same key go to the same partition, and stay in order.
            properties: names and texts that travel with the message.
            event_time_ms: the application's own time, in milliseconds since the Unix epoch.
            partition: the partition's number; by default the key decides.
        Raises:
            InvalidTxnState: no transaction is open.
            MagnetarError: as Transaction.send.
        """
        return await self._open_transaction("send").send(
            topic,
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
        )

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Send a message in the transaction without waiting; commit() raises if it fails.

        The arguments are those of `send`.

        Raises:
            InvalidTxnState: no transaction is open.
            MagnetarError: as Transaction.enqueue.
        """
        await self._open_transaction("send").enqueue(
            topic,
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
        )

    async def acknowledge(self, consumer: Acknowledging, messages: Iterable[Message]) -> None:
        """Acknowledge messages in the transaction.

        Args:
            consumer: the consumer that received them.
            messages: the messages.
        Raises:
            InvalidTxnState: no transaction is open.
            MagnetarError: as Consumer.ack.
        """
        transaction = self._open_transaction("acknowledge")
        try:
            _check_consumer("consumer", consumer)
            await consumer.ack_many(messages, txn=transaction)
        except BaseException as error:
            # Most errors have done so already.
            transaction.work.fail(error)
            raise

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Acknowledge in the transaction all messages that the consumer received below offsets.

        Args:
            offsets: for each partition the offset of the next message to process;
                magnetar.offsets() returns them for a batch of messages.
        Raises:
            InvalidTxnState: no transaction is open, or init_transactions() was not called.
            IllegalGeneration: the consumer has lost a partition. Abort, drop the batch, go on.
            InvalidArgument: the consumer has not received messages up to this offset. The
                transaction has failed.
            TransactionConflict: a message is acknowledged already. Abort.
        Source: KIP-447, sendOffsetsToTransaction.
        """
        transaction = self._open_transaction("send_offsets_to_transaction")
        try:
            if self._consumer is None:
                raise InvalidTxnState("call init_transactions(consumer) first")
            await self._consumer.ack_offsets(offsets, txn=transaction)
        except BaseException as error:
            transaction.work.fail(error)
            raise

    async def prepare(self) -> PreparedTxnState:
        """Confirm all sends and acks. After that only commit, abort and complete are allowed.

        The call asks no coordinator.

        Returns:
            The state to store in the database, in the same database transaction as the data.
        Raises:
            CommitRefused: a send or an ack had failed; the transaction was aborted.
            InvalidTxnState: no transaction is open, or the producer has no two-phase commit.
        Source: KIP-939, prepareTransaction.
        """
        self._require("prepare")
        if not self.two_phase_commit:
            raise InvalidTxnState(
                "prepare() needs two-phase commit: without it the transaction may expire any time"
            )
        assert self._transaction is not None
        try:
            await self._transaction.work.prepare()
        except BaseException as error:
            self._note_failure(error)
            raise
        self._prepared = PreparedTxnState.of(self._identity, self._transaction.txn_id)
        self._move(Event.PREPARED)
        return self._prepared

    async def commit(self) -> None:
        """Commit the open or prepared transaction.

        Raises:
            CommitRefused: a send or an ack had failed; the transaction was aborted.
            InvalidTxnState: there is no transaction, or it was aborted.
            ProducerFenced: another instance has taken over the transactional id, and decides.
            OutcomeUnknown: no answer came in time; commit again to learn the outcome.
            TxnForgotten, TxnNotFound: it has ended, and its outcome is no longer known. The next
                one may begin.
        """
        await self._end("commit", common_pb2.COMMIT)

    async def abort(self) -> None:
        """Abort the open or prepared transaction.

        Raises:
            InvalidTxnState: there is no transaction, or it was committed.
            ProducerFenced: another instance has taken over the transactional id, and decides.
            OutcomeUnknown: no answer came in time; abort again to learn the outcome.
            TxnForgotten, TxnNotFound: as commit.
        """
        await self._end("abort", common_pb2.ABORT)

    @checked
    async def check_outcome(self, prepared: PreparedTxnState) -> None:
        """Check that a database and the topics agree about the last transaction of the database.

        For a recovery, between init(keep_prepared=True) and complete(). An empty state agrees, and
        so does the transaction that init() has kept, since complete() will commit it.

        Args:
            prepared: the state that the database has.
        Raises:
            DataLoss: the transaction was aborted: the database and the topics disagree.
            InvalidTxnState: the transaction is open, and not the one that init() has kept.
            InvalidArgument: the state is not of a transaction of this transactional id.
            TxnForgotten: its coordinator no longer knows it: the outcome is unknown.
            TxnNotFound: no coordinator of this cluster has issued its TxnID.
        """
        if self.transactional_id is None:
            raise InvalidTxnState("a producer without a transactional id has nothing to recover")
        if prepared.txn_id is None or prepared == self._prepared:
            return
        status = await self._transactions.outcome_of_prepared(self.transactional_id, prepared)
        if status is TransactionStatus.OPEN:
            raise InvalidTxnState(
                f"{prepared.txn_id} of {self.transactional_id!r} is open at its coordinator, which"
                " is not the one that has this id now: the list of coordinators has changed. Commit"
                " it with `magnetar transactions complete`"
            )

    @checked
    async def complete(self, prepared: PreparedTxnState) -> bool:
        """Commit the prepared transaction if the database has it; abort it otherwise.

        Args:
            prepared: the state that the database has.
        Returns:
            Whether a transaction was committed. Without a prepared transaction nothing happens.
        Source: KIP-939, completeTransaction.
        """
        self._require("complete")
        if self._prepared.txn_id is None:
            self._move(Event.ENDED)
            return False
        commits = prepared == self._prepared
        await self._end("complete", common_pb2.COMMIT if commits else common_pb2.ABORT)
        return commits

    async def close(self) -> None:
        """Abort an open transaction and close. A prepared one stays for the next instance.

        Raises:
            MagnetarError: as abort(). The producer is closed nevertheless, and the coordinator
                aborts the transaction in time.
        """
        try:
            if self._state in (State.OPEN, State.IN_DOUBT):
                await self.abort()
        finally:
            self._move(Event.CLOSED)
            await self._producers.close()

    async def __aenter__(self) -> TransactionalProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _end(self, name: str, action: common_pb2.TxnAction) -> None:
        self._require(name)
        try:
            if self._transaction is None:
                await self._end_kept(action)
            elif action == common_pb2.COMMIT:
                await self._transaction.commit()
            else:
                await self._transaction.abort()
        except BaseException as error:
            self._note_failure(error)
            raise
        self._note_end()

    def _note_failure(self, error: BaseException) -> None:
        """Note the state of the transaction that follows from a failed call."""
        transaction = self._transaction
        if isinstance(error, ProducerFenced):
            self._move(Event.FENCED)
        elif isinstance(error, TxnForgotten | TxnNotFound):
            # To ask again would bring the same for ever.
            self._note_end()
        elif transaction is None:
            if isinstance(error, InvalidTxnState):
                # The other outcome is decided.
                self._note_end()
        elif transaction.work.has_ended:
            self._note_end()
        elif transaction.work.is_in_doubt:
            self._move(Event.UNANSWERED)

    def _note_end(self) -> None:
        identity = None if self._transaction is None else self._transaction.work.next_identity
        if identity is not None:
            self._identity = identity
        self._transaction = None
        self._prepared = PreparedTxnState()
        self._move(Event.ENDED)

    async def _end_kept(self, action: common_pb2.TxnAction) -> None:
        """End the transaction of an earlier instance.

        This instance does not know how much the earlier one wrote, so the command has no counts.
        """
        if self._prepared.txn_id is None:
            raise InvalidTxnState(
                f"{self.transactional_id!r} has kept nothing: complete() would do nothing"
            )
        assert self._coordinator is not None
        reply: Ended = await self._coordinator.request(
            EndTxn(
                self._prepared.txn_id,
                action,
                identity=self._identity.to_wire(),
                seen_stamp=self._transactions.runtime.seen_stamp,
            ),
            timeout_ms=self._transactions.config.commit_timeout_ms,
        )
        self._transactions.runtime.saw(reply.stamp)
        assert reply.identity is not None
        self._identity = ProducerIdentity.from_wire(reply.identity)

    def _open_transaction(self, call: str) -> Transaction:
        """Return the open transaction, for a call.

        Raises:
            InvalidTxnState: there is none.
        """
        self._require(call)
        assert self._transaction is not None
        return self._transaction

    def _require(self, call: str) -> None:
        self._transactions.runtime.require_loop()
        require_call(self._state, call, self._name)

    def _move(self, event: Event) -> None:
        self._state = MACHINE.next(self._state, event, self._name)

    @property
    def _name(self) -> str:
        """The producer's name in messages for people."""
        return repr(self.transactional_id) if self.transactional_id else "this producer"
