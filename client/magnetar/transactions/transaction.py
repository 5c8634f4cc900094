"""A transaction, from its TxnID to its outcome.

Source: PIP-31, Public APIs, Transaction#commit and Transaction#abort;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from magnetar.arguments import checked, copied, refusal
from magnetar.enums import TransactionStatus
from magnetar.errors import CommitRefused, failure_of
from magnetar.link.in_flight import copy_error
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.transactions.beginning import Begin, Beginning, Begun
from magnetar.transactions.end_requests import EndRequests
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.outcome_inquiry import OutcomeInquiry
from magnetar.transactions.participants import Participants, TransactionPart
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar.transactions.topic_producers import TopicProducers
from magnetar.transactions.transaction_block import TransactionBlock
from magnetar.transactions.transaction_state import (
    COMMIT_WAS_ASKED,
    DECIDED_ABORT,
    DECIDED_COMMIT,
    ENDED,
    HEARD,
    IN_DOUBT,
    STATUS_OF,
    UNDECIDED,
    Event,
    Phase,
    next_phase,
)
from magnetar.transactions.txn_send import TxnSend
from magnetar.transactions.whole_batch import WholeBatchCommit
from magnetar.transactions.writer_protocols import Acknowledging, Acks, Sender, TopicProducer
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2

log = logging.getLogger("magnetar")

BLOCK_REMEDY = "use txn.send(), txn.ack(), or txn=txn"

# Finds the client's open consumer of an id; None: there is none.
ConsumerOf = Callable[[int], Acknowledging | None]


class Transaction:
    """A transaction. `Client.transaction` or `Client.begin_transaction` makes it.

    As a context manager it commits on exit, and aborts on an exception.

        async with client.transaction(timeout_s=60) as txn:
            await txn.send("invoices", b"invoice 7")
            await txn.ack(message)

    Inside of such a block, a send or an ack of the same client that is given no `txn` raises
    InvalidArgument, and the transaction fails: it would stay if the transaction aborts. Whoever
    means that says `txn=None`. The block covers the task that opened it, and the tasks that this
    task starts inside, until the block is left. Transactions do not nest: an inner block is a
    transaction of its own, which commits or aborts by itself.

    A lazy transaction begins at its coordinator only when it has to: with its second partition, its
    first acknowledgement, or with more messages than fit a batch. Otherwise its messages travel as
    a plain batch, which the broker stores completely or not at all.
    Source: PIP-31, Future Work, Single Partition Transaction.
    """

    def __init__(
        self,
        runtime: Runtime,
        begin: Begin,
        on_ended: Callable[[Transaction], None],
        *,
        producers: TopicProducers,
        consumer_of: ConsumerOf,
    ) -> None:
        """A transaction that has not written anything yet.

        Args:
            producers: those with which it sends to topics by name.
            consumer_of: returns the client's open consumer of an id; None: there is none.
        """
        # It closes when the program drops it.
        self._client: object = None
        self._producers = producers
        self._consumer_of = consumer_of
        self._block: TransactionBlock | None = None
        self.number = runtime.next_number()
        self._runtime = runtime
        self._on_ended = on_ended
        self._phase = Phase.OPEN
        # Whether the application has prepared, committed, aborted or left it, or tried to.
        self._is_ended_here = False
        self._failure: MagnetarError | None = None
        # Which send or ack that was; None: it was neither, or nothing has failed.
        self._failed_call: FailedCall | None = None
        # The error of a coordinator that no longer knows the transaction.
        self._forgotten: TxnNotFound | TxnForgotten | None = None
        # The messages of a lazy transaction that never began.
        self._whole = WholeBatchCommit()
        self._participants = Participants()
        self._beginning = Beginning(
            runtime, begin, self._participants, on_begun=self._on_begun, on_failed=self.doom
        )
        # Both are there when the transaction has begun.
        self._inquiry: OutcomeInquiry | None = None
        self._end_requests: EndRequests | None = None
        self._commit_command: transaction_pb2.CommandEndTxn | None = None
        # Commit and abort take turns.
        self._ending = asyncio.Lock()
        self._settled = False

    def __repr__(self) -> str:
        return f"<Transaction {self._name} {self.status.name}>"

    @property
    def txn_id(self) -> TxnID:
        """The id of the transaction.

        Raises:
            InvalidTxnState: this is a lazy transaction that has not begun.
        """
        if self._beginning.begun is None:
            raise InvalidTxnState("this lazy transaction has not begun, and has no TxnID")
        return self._beginning.begun.txn_id

    @property
    def block(self) -> TransactionBlock:
        """The block that `async with` opens; there is none before."""
        assert self._block is not None
        return self._block

    def cover(self, remedy: str) -> TransactionBlock:
        """Return a block in which sends and acks without `txn` make the transaction fail.

        Args:
            remedy: how to send or acknowledge in the transaction, for people.
        """
        return TransactionBlock(self._runtime, self, remedy)

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator knows the transaction. A lazy one may end without that."""
        return self._beginning.begun is not None

    @property
    def has_ended(self) -> bool:
        """Whether this client knows that the transaction has ended, if not always how."""
        return self._phase in ENDED

    @property
    def is_in_doubt(self) -> bool:
        """Whether its end was asked for, and no answer has told its outcome."""
        return self._phase in IN_DOUBT

    @property
    def next_identity(self) -> ProducerIdentity | None:
        """With what its transactional producer begins the next one; None: this is not known."""
        return None if self._end_requests is None else self._end_requests.next_identity

    @property
    def timeout_ms(self) -> int:
        """After how many milliseconds the coordinator aborts it; only for a begun transaction."""
        assert self._beginning.begun is not None
        return self._beginning.begun.timeout_ms

    @property
    def status(self) -> TransactionStatus:
        """The status, as far as this client knows it.

        COMMITTING and ABORTING are decided, and participants carry them out.
        """
        return STATUS_OF[self._phase]

    @property
    def failure(self) -> MagnetarError | None:
        """The error of the first send or ack that failed; then only abort() is possible."""
        return self._failure

    def require_open(self) -> None:
        """Check that the transaction takes sends and acks.

        Raises:
            InvalidTxnState: it has ended, or failed.
        """
        if self._phase is not Phase.OPEN:
            raise InvalidTxnState(f"{self._name} takes nothing more: it is {self._phase.name}")
        # Asked for each message: a call less.
        if self._failure is not None:
            self._require_sound()

    def require_client(self, runtime: Runtime) -> None:
        """Check that the transaction and whoever takes part in it belong to one client.

        Raises:
            InvalidArgument: they do not.
        """
        if runtime is not self._runtime:
            raise InvalidArgument(
                f"{self._name} belongs to another client: begin the transaction with the client of"
                " this producer or consumer"
            )

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
        self.require_open()
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
            self.fail(error)
            raise

    async def ack_cumulative(self, message: Message) -> None:
        """Acknowledge in the transaction what its consumer received of a partition up to a message.

        Args:
            message: the last message to acknowledge.
        Raises:
            InvalidArgument: the subscription is SHARED or KEY_SHARED.
            MagnetarError: as ack.
        """
        self.require_open()
        await self._consumer(message).ack_cumulative(message, txn=self)

    async def _producer(self, topic: str) -> TopicProducer:
        self.require_open()
        try:
            return await self._producers.of(topic)
        except BaseException as error:
            self.fail(error, FailedCall(topic if isinstance(topic, str) else ""))
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
                f"{message!r} is no message, and does not say which consumer has received it:"
                " give the message, or use consumer.ack(..., txn=txn)"
            )
        self.doom(error)
        raise error

    async def begin(self) -> None:
        """Begin the transaction at a coordinator now.

        Raises:
            MagnetarError: the coordinator refused it; see Client.begin_transaction.
        """
        await self._beginning.now()

    def begin_soon(self) -> None:
        """Begin a lazy transaction at the end of the event loop's turn, with its participants."""
        self._beginning.soon()

    def join_soon(self) -> None:
        """Begin it soon, and have the coordinator confirm all participants: `joined` will wait."""
        self._participants.confirm_soon()
        self.begin_soon()

    def _on_begun(self, begun: Begun) -> None:
        self._inquiry = OutcomeInquiry(
            self._runtime,
            begun.txn_id,
            begun.coordinator,
            begun.timeout_ms,
            on_ended=self._settle,
            on_forgotten=self._on_forgotten,
        )
        self._end_requests = EndRequests(self._runtime, begun)
        if self._settled:
            self._inquiry.end()

    def add_sender(self, sender: Sender, forget: Callable[[], object]) -> None:
        """Add a partition to which a producer writes.

        Args:
            sender: sends the transaction's messages to the partition.
            forget: called when the transaction ends.
        """
        self._participants.add_sender(sender, forget)
        if len(self._participants) > 1:
            self.begin_soon()

    def add_acks(self, acks: Acks) -> None:
        """Add a partition on which a consumer acknowledges."""
        self._participants.add_acks(acks)
        self.begin_soon()

    async def joined(self) -> None:
        """Wait until the coordinator knows all participants so far.

        A participant that the coordinator does not know may accept a message after the transaction
        has ended. Such a message does not count, so the application must not hear that it does.

        Raises:
            InvalidTxnState: the transaction has ended, or failed.
        """
        self._participants.confirm_soon()
        await self._beginning.ensure()
        await self._participants.enrolled()
        if self._settled and self._phase not in DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} was aborted")
        self._require_sound()

    def fail(self, error: BaseException, call: FailedCall | None = None) -> None:
        """Make an open transaction fail, since a send or an ack in it did not succeed.

        Whatever the reason was: a program that goes on in spite of it must not commit the rest. One
        that came too late for the transaction changes nothing.

        Args:
            error: what the call raises.
            call: the call; None: not known.
        Source: KafkaProducer.doSend, which puts the transaction into an abortable error.
        """
        if self._phase is not Phase.OPEN or self._failure is not None:
            return
        if isinstance(error, GeneratorExit):
            # The call is not cancelled, but forgotten: its event loop has ended.
            return
        name = "a send or an ack" if call is None else str(call)
        failure: MagnetarError
        if isinstance(error, asyncio.CancelledError):
            failure = OutcomeUnknown(f"{name} was cancelled before it was confirmed")
        elif isinstance(error, MagnetarError):
            failure = copy_error(error)
        else:
            failure = failure_of(error, name)
        try:
            self._runtime.require_loop()
        except MagnetarError:
            # This may be another thread: the commit does the rest.
            self._failure, self._failed_call = failure, call
        else:
            self.doom(failure, call)

    def doom(self, error: MagnetarError, call: FailedCall | None = None) -> None:
        """Make the transaction fail.

        Buffered messages and acks are dropped, and commit() will raise CommitRefused.

        Args:
            error: the reason.
            call: the send or the ack that has failed; None: it was neither.
        """
        if self._failure is None:
            self._failure, self._failed_call = error, call
            log.info("transaction %s failed: %s", self._name, error)
            for sender in self._participants.senders:
                if isinstance(sender.failure, Gone | TopicNotFound):
                    self._producers.forget(sender.name.topic)
            self._participants.abandon(error)
            if isinstance(error, InvalidTxnState) and self._phase in UNDECIDED:
                self.doubt()

    async def prepare(self) -> None:
        """Confirm all sends and acks, and take no more. The transaction can then be committed.

        Raises:
            CommitRefused: a send or an ack had failed; the transaction was aborted.
            InvalidTxnState: the transaction has ended, or is not open.
        Source: KIP-939, prepareTransaction.
        """
        async with self._end_here():
            if self._phase is not Phase.OPEN:
                raise InvalidTxnState(f"{self._name} cannot be prepared: it is {self._phase.name}")
            await self._tell_seen()
            await self._prepare_commit()

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
            TxnForgotten: the transaction has ended, and nobody knows its outcome any more.
            TxnNotFound: as TxnForgotten.
        Source: PIP-31, Transaction#commit.
        """
        async with self._end_here():
            if self._phase is Phase.ABORT_ASKED or self._phase in DECIDED_ABORT:
                raise InvalidTxnState(f"{self._name} was aborted") from self._failure
            self._require_not_left()
            self._require_remembered()
            if self._phase is Phase.COMMITTED:
                return
            if self._phase is Phase.COMMITTING and not wait_finished:
                return
            if not self._beginning.was_asked_for:
                await self._commit_whole()
                return
            if self._phase is Phase.OPEN:
                await self._prepare_commit()
            if self._phase is Phase.PREPARED:
                self._move(Event.COMMIT_REQUESTED)
            await self._ask_commit(wait_finished, fingerprint)

    async def leave(self) -> TransactionPart:
        """Confirm all sends and acks of this client, for another client to commit.

        The transaction stays open, and takes nothing more from this client.

        Returns:
            What this client has sent and acknowledged. The other client gives it to
            Client.commit_parts().
        Raises:
            CommitRefused: a send or an ack had failed, so nothing of this client counts. The
                transaction stays open, and the work of other clients in it stands.
            InvalidTxnState: the transaction has ended, or is not open.
        """
        async with self._end_here():
            if self._phase is not Phase.OPEN:
                raise InvalidTxnState(f"{self._name} cannot be left: it is {self._phase.name}")
            await self._prepare_commit(aborting=False)
            part = replace(
                self._participants.part(self.txn_id), seen_stamp=self._runtime.seen_stamp
            )
            self._move(Event.LEFT)
            self._release(committed=True)
            return part

    def withdraw(self) -> None:
        """Give up the part of this client, when several clients share the transaction.

        Nothing that this client has sent or acknowledged counts. The transaction stays open for the
        other clients, and their work stands. The call is harmless when the transaction has ended.
        """
        self._end_here()
        if self._phase in UNDECIDED:
            self._move(Event.LEFT)
            self._release(committed=False)

    def _end_here(self) -> asyncio.Lock:
        """Note that the application ends the transaction; return the lock of its ends."""
        self._runtime.require_loop()
        self._is_ended_here = True
        return self._ending

    def _require_not_left(self) -> None:
        if self._phase is Phase.LEFT:
            raise InvalidTxnState(
                f"{self._name} was left here: whoever has its parts commits or aborts it"
            )

    async def abort(self) -> None:
        """Abort the transaction: none of its messages and acks counts.

        The call is harmless when the transaction is aborted already.

        Raises:
            InvalidTxnState: the transaction is committed. No effect.
            OutcomeUnknown: no answer came in time. The coordinator aborts the transaction when its
                time is up.
            TxnForgotten: the transaction has ended, and nobody knows its outcome any more.
            TxnNotFound: as TxnForgotten.
        Source: PIP-31, Transaction#abort.
        """
        async with self._end_here():
            await self._abort()

    async def close(self) -> None:
        """Abort the transaction if it is open, since the client closes."""
        if self._inquiry is not None:
            self._inquiry.forget_expiry()
        if self._phase is Phase.OPEN:
            async with self._ending:
                await self._abort()

    async def __aenter__(self) -> Transaction:
        if self._block is None:
            self._block = self.cover(BLOCK_REMEDY)
            self._block.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end_block(error)
        finally:
            self.block.end()

    async def _end_block(self, error: BaseException | None) -> None:
        if error is None:
            # When somebody else has aborted it, or the client's close aborts it now, commit() says
            # so: the application must not go on as if its block had been committed.
            is_aborted = self._phase is Phase.ABORT_ASKED or self._phase in DECIDED_ABORT
            is_lost = is_aborted and not self._is_ended_here
            if is_lost or self._phase in (Phase.OPEN, Phase.FORGOTTEN):
                try:
                    await self.commit()
                except BaseException as commit_error:
                    await self._abort_after(commit_error)
                    raise
        else:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an error, and do not let another error mask it."""
        if self._phase in COMMIT_WAS_ASKED:
            error.add_note(f"the commit of {self._name} was asked for; its outcome is not known")
        if self._phase is Phase.OPEN:
            await self._abort_apart(self.abort(), error)

    async def _abort_apart(self, abort: Coroutine[Any, Any, None], error: BaseException) -> None:
        # In a task of its own: cancelling the caller must not leave the transaction open.
        aborting = self._runtime.spawn(abort, f"abort {self._name}", self._on_abort_died)
        try:
            await self._runtime.result_of(aborting)
        except MagnetarError as abort_error:
            error.add_note(f"aborting {self._name} failed as well: {abort_error}")
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    def _on_abort_died(self, error: MagnetarError) -> None:
        """Learn whether it was aborted: consumers wait for that."""
        self.doom(error)
        if self._inquiry is not None:
            self._inquiry.resolve_soon()

    async def _tell_seen(self) -> None:
        """Tell the coordinator what this client has seen: somebody else may decide the commit.

        What is told with a commit, when that comes from this client, needs no round trip.

        Raises:
            MagnetarError: the coordinator does not answer, or the transaction has ended.
        """
        seen_stamp = self._runtime.seen_stamp
        if not seen_stamp or self._runtime.has_one_coordinator:
            return
        await self._beginning.ensure()
        begun = self._beginning.begun
        if begun is not None and seen_stamp > begun.seen_stamp:
            await begun.coordinator.request(
                transaction_pb2.CommandAddPartitionToTxn(
                    txn_id=begun.txn_id.to_wire(),
                    identity=None if begun.identity is None else begun.identity.to_wire(),
                    seen_stamp=seen_stamp,
                )
            )

    async def _prepare_commit(self, *, aborting: bool = True) -> None:
        """Confirm all sends and acks, and build the command EndTxn.

        Args:
            aborting: whether to abort the transaction if a send or an ack had failed.
        Raises:
            CommitRefused: a send or an ack had failed.
            InvalidTxnState: the transaction has ended meanwhile.
        """
        self._move(Event.FLUSH_BEGUN)
        try:
            await self._beginning.ensure()
            await self._participants.flush()
        except BaseException:
            if not self._settled:
                self._move(Event.FLUSH_CANCELLED)
            raise
        self._require_remembered()
        if self._settled:
            raise InvalidTxnState(
                f"{self._name} was ended meanwhile, by its timeout or by an administrator:"
                f" it is {self.status.name}"
            )
        failure = self._failure
        if failure is None:
            self._move(Event.FLUSHED)
            self._commit_command = self._participants.commit_command()
            return
        if not aborting:
            self._move(Event.LEFT)
            self._release(committed=False)
            raise self._refusal(f"the part in {self._name} is void") from failure
        refused = self._refusal(f"{self._name} was aborted")
        # Now: if the client is closed, the abort does not begin.
        self._move(Event.ABORT_REQUESTED)
        await self._abort_apart(self._abort(), refused)
        if self._phase in DECIDED_COMMIT:
            raise InvalidTxnState(
                f"{self._name} was committed by another client or an administrator,"
                f" although {self._reason}"
            ) from failure
        raise refused from failure

    async def _commit_whole(self) -> None:
        """Commit a lazy transaction that never had to begin: send its messages as a plain batch.

        Raises:
            MagnetarError: as commit.
        """
        if self._failure is not None:
            self._settle(TransactionStatus.ABORTED)
            raise self._refusal(f"{self._name} was aborted") from self._failure
        senders = self._participants.senders
        sender = senders[0] if senders else None
        if sender is None or sender.plain is None or not self._whole.has_something(sender):
            self._settle(TransactionStatus.COMMITTED)
            return
        self._move(Event.COMMIT_REQUESTED)
        try:
            await self._whole.send(
                sender,
                sender.plain,
                name=self._name,
                timeout_ms=self._runtime.config.commit_timeout_ms,
            )
        except OutcomeUnknown:
            raise
        except MagnetarError as error:
            self._failure = error
            self._failed_call = FailedCall.send_to(sender.name)
            self._settle(TransactionStatus.ABORTED)
            raise self._refusal(f"{self._name} was aborted") from error
        self._settle(TransactionStatus.COMMITTED)

    async def _ask_commit(self, wait_finished: bool, fingerprint: str) -> None:
        assert self._commit_command is not None
        assert self._end_requests is not None
        assert self._inquiry is not None
        try:
            status = await self._end_requests.commit(
                self._commit_command, wait_finished=wait_finished, fingerprint=fingerprint
            )
        except InvalidTxnState:
            self._settle(TransactionStatus.ABORTED)
            raise
        except (TxnNotFound, TxnForgotten):
            raise
        except BaseException:
            # Undecided for all that we know: later sends of its producers stay behind it.
            if self._phase in COMMIT_WAS_ASKED:
                self._participants.lead_plain_sends()
                self._inquiry.resolve_soon()
            raise
        self._settle(status)

    async def _abort(self) -> None:
        if self._phase in DECIDED_ABORT:
            return
        if self._phase in DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} is committed")
        self._require_not_left()
        self._require_remembered()
        if self._whole.was_sent:
            raise OutcomeUnknown(f"{self._name} may be committed: commit it again to know")
        commit_was_asked = self._phase in COMMIT_WAS_ASKED
        self._move(Event.ABORT_REQUESTED)
        error = InvalidTxnState(f"{self._name} was aborted")
        self._participants.abandon(error)
        await self._beginning.settled()
        if self._end_requests is None or self._inquiry is None:
            # It never began.
            self._settle(TransactionStatus.ABORTED)
            return
        try:
            async with asyncio.timeout(self._runtime.config.abort_drain_ms / 1000):
                # Its coordinator can tell only those that it knows; others hear of it much later.
                await self._participants.drain()
        except TimeoutError:
            pass
        self._participants.give_up(error)
        try:
            status = await self._end_requests.abort()
        except InvalidTxnState:
            self._settle(TransactionStatus.COMMITTED)
            raise
        except BaseException:
            if commit_was_asked:
                self._participants.lead_plain_sends()
            self._inquiry.resolve_soon()
            raise
        self._settle(status)

    def _settle(self, status: TransactionStatus) -> None:
        """Note the outcome, and tell producers and consumers, once."""
        self._move(HEARD[status])
        self._release(committed=self._phase in DECIDED_COMMIT)

    def _move(self, event: Event) -> None:
        self._phase = next_phase(self._phase, event, self._beginning)

    def _release(self, *, committed: bool) -> None:
        if self._settled:
            return
        self._settled = True
        if self._inquiry is not None:
            self._inquiry.end()
        if not committed:
            self._participants.give_up(InvalidTxnState(f"{self._name} was aborted"))
        self._participants.release(committed=committed)
        self._on_ended(self)

    @property
    def _name(self) -> str:
        """The transaction's name in messages for people."""
        return str(self._beginning)

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise InvalidTxnState(
                f"{self._name} has failed, abort it: {self._reason}"
            ) from self._failure

    def _refusal(self, happened: str) -> CommitRefused:
        """Return the error of a commit when a send or an ack has failed."""
        details = {} if self._failed_call is None else self._failed_call.details
        return CommitRefused(f"{happened}: {self._reason}", **details)

    @property
    def _reason(self) -> str:
        """Why it has failed, in messages for people."""
        error = f"{type(self._failure).__name__}: {self._failure}"
        return error if self._failed_call is None else f"{self._failed_call} failed: {error}"

    def doubt(self) -> None:
        """Ask the coordinator at once whether somebody else has ended the transaction.

        If it was aborted, the messages that it acknowledged are received again now, and not when
        the transaction's time is up.
        """
        if self._inquiry is not None:
            self._inquiry.doubt()

    def _on_forgotten(self, error: TxnNotFound | TxnForgotten) -> None:
        self._forgotten = error
        self._move(Event.HEARD_FORGOTTEN)
        # If it was committed, the broker ignores nacks of its acks.
        self._release(committed=False)

    def _require_remembered(self) -> None:
        """Raises: TxnNotFound, TxnForgotten: nobody can say any more how it has ended."""
        if self._phase is Phase.FORGOTTEN:
            assert self._forgotten is not None
            raise self._forgotten
