"""A producer whose transactions outlive it: for two-phase commit with another system.

Source: KIP-939, KafkaProducer API Changes; docs/design/two_phase_commit.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

from magnetar.identity import PreparedTxnState, ProducerIdentity
from magnetar.message import Message
from magnetar.model import TxnSend
from magnetar_core.errors import InvalidArgument, InvalidTxnState, ProducerFenced
from magnetar_core.ids import MessageId, TxnID
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from magnetar.client import Client
    from magnetar.connection import Connection
    from magnetar.consumer import Consumer
    from magnetar.producer import Producer
    from magnetar.transaction import Transaction


class _State(Enum):
    """By name what may be called."""

    NEW = "init"
    READY = "begin, init"
    OPEN = "send, acknowledge, prepare, commit, abort"
    PREPARED = "commit, abort, complete"
    FENCED = "nothing: another instance has taken over"
    CLOSED = "nothing: it is closed"


class TransactionalProducer:
    """Made by `Client.transactional_producer`. Not for several tasks at once."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        two_phase_commit: bool,
        timeout_s: float | None,
    ) -> None:
        if two_phase_commit and timeout_s is not None:
            raise InvalidArgument(
                "with two-phase commit a transaction never expires: leave timeout_s out"
            )
        self.transactional_id = transactional_id
        self.two_phase_commit = two_phase_commit
        self._client = client
        self._timeout_s = timeout_s
        self._state = _State.NEW
        self._coordinator: Connection | None = None
        self._identity = ProducerIdentity(transactional_id, -1, -1)
        self._transaction: Transaction | None = None
        # Of what is prepared, here or by the instance before.
        self._prepared = PreparedTxnState()
        self._producers: dict[str, Producer] = {}

    @property
    def identity(self) -> ProducerIdentity:
        """With the pair that it has now; -1 before init()."""
        return self._identity

    @property
    def transaction(self) -> Transaction | None:
        """The one that this instance has begun, while it is open or prepared."""
        return self._transaction

    async def init(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Take the transactional id over: whoever had it before is fenced.

        Args:
            keep_prepared: keep what is open, to complete it; otherwise it is aborted.
        Returns:
            What was kept; empty when nothing was.
        Raises:
            TransactionalIdAuthorizationFailed: two-phase commit is not allowed.
            InvalidTxnState: a transaction of this instance is open.
        Source: KIP-939, initTransactions.
        """
        self._require("init", _State.NEW, _State.READY)
        self._coordinator = await self._client.coordinator_for(self.transactional_id)
        reply: transaction_pb2.CommandInitProducerResponse = await self._coordinator.request(
            transaction_pb2.CommandInitProducer(
                transactional_id=self.transactional_id,
                txn_timeout_ms=int((self._timeout_s or 0) * 1000),
                enable_2pc=self.two_phase_commit,
                keep_prepared=keep_prepared,
            )
        )
        self._identity = ProducerIdentity(
            self.transactional_id, reply.producer_id, reply.producer_epoch
        )
        if not reply.HasField("ongoing_txn_id"):
            self._prepared = PreparedTxnState()
            # Nothing to complete; what is completed all the same is nothing.
            self._state = _State.PREPARED if keep_prepared else _State.READY
            return self._prepared
        self._prepared = PreparedTxnState(
            reply.ongoing_producer_id,
            reply.ongoing_producer_epoch,
            TxnID.from_wire(reply.ongoing_txn_id),
        )
        self._state = _State.PREPARED
        return self._prepared

    async def begin(self) -> None:
        """Open a transaction. Raises: ProducerFenced; InvalidTxnState, when one is open."""
        self._require("begin", _State.READY)
        assert self._coordinator is not None
        with self._fencing():
            self._transaction = await self._client.begin_as(
                self._identity, self._coordinator, self._on_pair
            )
        self._state = _State.OPEN

    async def send(
        self, topic: str, value: bytes, key: bytes | None = None, **options: Any
    ) -> TxnSend | MessageId:
        """Send a message in the transaction, and wait until its broker holds it.

        Args:
            options: as of Producer.send, without txn.
        """
        self._require("send", _State.OPEN)
        producer = await self._producer(topic)
        return await producer.send(value, key, txn=self._transaction, **options)

    async def enqueue(
        self, topic: str, value: bytes, key: bytes | None = None, **options: Any
    ) -> None:
        """As send, without waiting: prepare() or commit() tell what became of it."""
        self._require("send", _State.OPEN)
        producer = await self._producer(topic)
        await producer.enqueue(value, key, txn=self._transaction, **options)

    async def acknowledge(self, consumer: Consumer, messages: Iterable[Message]) -> None:
        """Acknowledge messages in the transaction."""
        self._require("acknowledge", _State.OPEN)
        await consumer.ack_many(messages, txn=self._transaction)

    async def prepare(self) -> PreparedTxnState:
        """Flush. From now on only commit, abort and complete are allowed.

        Store what it returns with the data that the transaction belongs to, in one database
        transaction. No coordinator is asked.

        Raises:
            CommitRefused: a send or an ack had failed; it was aborted.
            InvalidTxnState: without two-phase commit, or nothing is open.
        Source: KIP-939, prepareTransaction.
        """
        self._require("prepare", _State.OPEN)
        if not self.two_phase_commit:
            raise InvalidTxnState(
                "prepare() needs two-phase commit: without it the transaction may expire any time"
            )
        assert self._transaction is not None
        try:
            await self._transaction.prepare()
        except BaseException:
            self._after_failure()
            raise
        self._prepared = PreparedTxnState(
            self._identity.producer_id, self._identity.producer_epoch, self._transaction.txn_id
        )
        self._state = _State.PREPARED
        return self._prepared

    async def commit(self) -> None:
        """Commit what is open or prepared.

        Raises:
            InvalidTxnState: nothing is. Or it was aborted.
            ProducerFenced: another instance has taken over, and decides.
            OutcomeUnknown: no answer in time; commit again to know.
        """
        await self._end("commit", common_pb2.COMMIT)

    async def abort(self) -> None:
        """Abort what is open or prepared. Raises: as commit."""
        await self._end("abort", common_pb2.ABORT)

    async def complete(self, prepared: PreparedTxnState) -> bool:
        """Commit if this is the transaction that is prepared; abort it otherwise.

        Args:
            prepared: what the database holds.
        Returns:
            Whether a transaction was committed; nothing happens when none is prepared.
        Source: KIP-939, completeTransaction.
        """
        self._require("complete", _State.PREPARED)
        if self._prepared.txn_id is None:
            self._state = _State.READY
            return False
        commits = prepared == self._prepared
        await self._end("complete", common_pb2.COMMIT if commits else common_pb2.ABORT)
        return commits

    async def close(self) -> None:
        """Abort what is open; what is prepared stays, for the next instance."""
        if self._state is _State.OPEN:
            await self.abort()
        self._state = _State.CLOSED
        for producer in self._producers.values():
            await producer.close()

    async def __aenter__(self) -> TransactionalProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _end(self, name: str, action: common_pb2.TxnAction) -> None:
        self._require(name, _State.OPEN, _State.PREPARED)
        with self._fencing():
            if self._transaction is None:
                await self._end_kept(action)
            elif action == common_pb2.COMMIT:
                try:
                    await self._transaction.commit()
                except BaseException:
                    self._after_failure()
                    raise
            else:
                await self._transaction.abort()
        self._transaction = None
        self._prepared = PreparedTxnState()
        self._state = _State.READY

    async def _end_kept(self, action: common_pb2.TxnAction) -> None:
        """What an earlier instance wrote: nobody here knows how much, so nothing is counted."""
        if self._prepared.txn_id is None:
            raise InvalidTxnState(
                f"{self.transactional_id!r} has kept nothing: complete() would do nothing"
            )
        assert self._coordinator is not None
        reply = await self._coordinator.request(
            transaction_pb2.CommandEndTxn(
                txn_id=self._prepared.txn_id.to_wire(),
                txn_action=action,
                identity=self._identity.to_wire(),
            ),
            timeout_ms=self._client.config.commit_timeout_ms,
        )
        self._on_pair(ProducerIdentity.from_wire(reply.identity))

    def _after_failure(self) -> None:
        """A transaction that was aborted is over; one whose outcome is unknown is not."""
        if self._transaction is not None and self._transaction.has_been_aborted:
            self._transaction = None
            self._state = _State.READY

    def _on_pair(self, identity: ProducerIdentity) -> None:
        self._identity = identity

    async def _producer(self, topic: str) -> Producer:
        producer = self._producers.get(topic)
        if producer is None:
            producer = self._producers[topic] = await self._client.create_producer(topic)
        return producer

    def _require(self, call: str, *states: _State) -> None:
        if self._state not in states:
            raise InvalidTxnState(
                f"{call}() is not possible while {self.transactional_id!r} is"
                f" {self._state.name}; allowed: {self._state.value}"
            )

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        """Note when the coordinator fences this instance."""
        try:
            yield
        except ProducerFenced:
            self._state = _State.FENCED
            raise
