"""The client: begins everything, and closes everything that it began."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from random import Random

from magnetar.config import Batching, ClientConfig, ProducerConfig
from magnetar.consumer_api import Consuming
from magnetar.enums import TransactionStatus
from magnetar.errors import ClientClosed
from magnetar.link.cluster import Cluster
from magnetar.link.connection import Connection
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.producer import Producer
from magnetar.messaging.read_ahead import read_ahead
from magnetar.messaging.reader import read_columns
from magnetar.transactions.beginning import Begun
from magnetar.transactions.coordinator_choice import CoordinatorChoice
from magnetar.transactions.participants import TransactionPart, commit_parts
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_scope import TransactionScope
from magnetar.transactions.transactional_producer import TransactionalProducer
from magnetar_core.batch import Codec
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    MagnetarError,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport import Transport
from magnetar_core.wire import transaction_pb2

log = logging.getLogger("magnetar")

# Of thousands that are open when a client closes, so many are aborted at once.
CLOSING_ABORTS_MAX = 256


class Client(Consuming):
    """Made by `connect`. Belongs to the event loop in which it was made."""

    def __init__(self, address: str, runtime: Runtime) -> None:
        config = runtime.config
        budget = PendingBudget(config.pending_bytes_max, config.pending_messages_max)
        super().__init__(runtime, Cluster(address, runtime), budget)
        self._closed = False
        self._producers: dict[int, Producer] = {}
        self._transactions: dict[int, Transaction] = {}
        self._coordinators = CoordinatorChoice(self._cluster)

    @property
    def config(self) -> ClientConfig:
        return self._runtime.config

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
        given = {
            "linger_ms": linger_ms,
            "batch_bytes_max": batch_bytes_max,
            "batch_messages_max": batch_messages_max,
            "in_flight_batches_max": in_flight_batches_max,
            "whole_bytes_max": whole_bytes_max,
            "message_bytes_max": message_bytes_max,
        }
        config = ProducerConfig(
            codec=_codec(codec),
            batching=Batching.of(batching),
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )
        route = await self._cluster.route(topic)
        producer = Producer(
            self._runtime,
            route,
            config,
            self._budget,
            begin=self.begin_transaction,
            on_close=self._forget_producer,
        )
        self._producers[producer.producer_id] = producer
        return producer

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
        txn = Transaction(
            self._runtime, partial(self._new_txn, int(timeout_s * 1000)), self._forget_transaction
        )
        if not lazy:
            await txn.begin()
        self._transactions[txn.number] = txn
        return txn

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
        coordinator = await self._cluster.coordinator_for(name)
        txn = Transaction(
            self._runtime,
            partial(
                self._new_txn_at,
                coordinator,
                int(timeout_s * 1000),
                None,
                transaction_pb2.NamedSequence(
                    name=name, sequence=sequence, run_token=run_token, fingerprint=fingerprint
                ),
            ),
            self._forget_transaction,
        )
        await txn.begin()
        self._transactions[txn.number] = txn
        return txn

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
        command = commit_parts(parts)
        command.wait_finished = wait_finished
        command.fingerprint = fingerprint
        coordinator = await self._cluster.coordinator_of(parts[0].txn_id)
        reply = await coordinator.request(
            command, timeout_ms=self.config.commit_timeout_ms, patient=wait_finished
        )
        return TransactionStatus(reply.status)

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
            self, transactional_id, two_phase_commit=two_phase_commit, timeout_s=timeout_s
        )

    async def coordinator_for(self, transactional_id: str) -> Connection:
        """Where a transactional id lives; for TransactionalProducer."""
        return await self._cluster.coordinator_for(transactional_id)

    async def begin_as(
        self,
        identity: ProducerIdentity,
        coordinator: Connection,
        on_pair: Callable[[ProducerIdentity], None],
    ) -> Transaction:
        """Open the transaction of a transactional producer; for TransactionalProducer."""
        txn = Transaction(
            self._runtime,
            partial(self._new_txn_at, coordinator, 0, identity, None),
            self._forget_transaction,
            on_pair,
        )
        await txn.begin()
        self._transactions[txn.number] = txn
        return txn

    async def _new_txn_at(
        self,
        coordinator: Connection,
        txn_timeout_ms: int,
        identity: ProducerIdentity | None,
        named: transaction_pb2.NamedSequence | None,
        partitions: Collection[PartitionName],
        subscriptions: Collection[SubscriptionName],
    ) -> Begun:
        reply = await coordinator.request(
            transaction_pb2.CommandNewTxn(
                call_token=0 if named is None else self._runtime.new_id(),
                txn_timeout_ms=txn_timeout_ms,
                partitions=[one.to_wire() for one in partitions],
                subscriptions=[one.to_wire() for one in subscriptions],
                identity=None if identity is None else identity.to_wire(),
                named_sequence=named,
            )
        )
        return Begun(TxnID.from_wire(reply.txn_id), reply.txn_timeout_ms, coordinator, identity)

    async def _new_txn(
        self,
        txn_timeout_ms: int,
        partitions: Collection[PartitionName],
        subscriptions: Collection[SubscriptionName],
    ) -> Begun:
        reply, coordinator = await self._coordinators.new_txn(
            transaction_pb2.CommandNewTxn(
                txn_timeout_ms=txn_timeout_ms,
                partitions=[one.to_wire() for one in partitions],
                subscriptions=[one.to_wire() for one in subscriptions],
            )
        )
        return Begun(
            TxnID.from_wire(reply.txn_id), reply.txn_timeout_ms or txn_timeout_ms, coordinator
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
        route = await self._cluster.route(topic)
        pieces = read_columns(
            route,
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
            await self._close_all()
        finally:
            self._cluster.close()
            await self._runtime.cancel_all()
            await self._runtime.transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _close_all(self) -> None:
        turns = asyncio.Semaphore(CLOSING_ABORTS_MAX)
        await asyncio.gather(
            *(self._close_transaction(txn, turns) for txn in self._transactions.values())
        )
        for producer in list(self._producers.values()):
            try:
                await producer.close()
            except MagnetarError as error:
                log.warning("closing: messages to %s failed: %s", producer.topic, error)
        for consumer in list(self._consumers.values()):
            await consumer.close()

    async def _close_transaction(self, txn: Transaction, turns: asyncio.Semaphore) -> None:
        try:
            # Waiting for a turn counts: all of them together take no longer than one may.
            async with asyncio.timeout(self.config.close_timeout_ms / 1000), turns:
                await txn.close()
        except (MagnetarError, TimeoutError) as error:
            log.info("closing: %r was not aborted: %s", txn, error)

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    def _forget_producer(self, producer: Producer) -> None:
        self._producers.pop(producer.producer_id, None)

    def _forget_transaction(self, txn: Transaction) -> None:
        self._transactions.pop(txn.number, None)


async def connect(
    address: str,
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """Connect to a cluster through one of its brokers, "host:port".

    Args:
        transport: owned by the client from now on; gRPC unless given.
        clock, random: the machine's unless given.
    Raises:
        LogUnavailable: nobody answers there in time.
        ClusterMismatch: it does not want this client.
    """
    if transport is None:
        from magnetar_core.grpc_transport import GrpcTransport

        transport = GrpcTransport()
    runtime = Runtime(
        transport, clock or SystemClock(), random or Random(), config or ClientConfig()
    )
    client = Client(address, runtime)
    try:
        await client.cluster_info()
    except BaseException:
        await client.close()
        raise
    return client


def _codec(codec: Codec | str) -> Codec:
    if isinstance(codec, Codec):
        return codec
    try:
        return Codec[codec.upper()]
    except KeyError:
        raise InvalidArgument(f"{codec!r} is not a codec") from None
