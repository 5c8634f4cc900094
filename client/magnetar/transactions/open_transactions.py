"""The transactions of a client: how each begins, and that none stays open when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.config import ClientConfig
from magnetar.enums import TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.runtime import Runtime
from magnetar.transactions.beginning import Begin, OnBegun
from magnetar.transactions.begun import Begun
from magnetar.transactions.coordinator_choice import CoordinatorChoice
from magnetar.transactions.prepared_outcome import outcome_of_prepared
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar.transactions.topic_producers import TopicProducers
from magnetar.transactions.transaction import ConsumerOf, Transaction
from magnetar.transactions.transaction_part import TransactionPart, commit_parts
from magnetar.transactions.transaction_work import TransactionWork
from magnetar.transactions.writer_protocols import TopicProducer
from magnetar_core.errors import MagnetarError, SequenceCommitted
from magnetar_core.ids import Participant
from magnetar_core.transport.columns.end_txns import Ended
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.wire.transaction_pb2 import NamedSequence

if TYPE_CHECKING:
    from magnetar.link.traces import ClientTraces

log = logging.getLogger("magnetar")

# Of thousands that are open when a client closes, so many are aborted at once.
CLOSING_ABORTS_MAX = 256


class TransactionSpan:
    """The span of a transaction; its commands are spans below it."""

    def __init__(self, traces: ClientTraces) -> None:
        self._traces = traces
        self._span = traces.transaction()
        self._begun: Begun | None = None

    def around(self, begin: Begin) -> Begin:
        """Return a function that begins the transaction inside the span."""

        def begin_inside(
            participating: Sequence[Participant], on_begun: OnBegun
        ) -> Callable[[], object]:
            def noted(answer: Begun | MagnetarError) -> None:
                if isinstance(answer, Begun):
                    self._begun = answer
                    self._traces.begun(answer.txn_id, self._span)
                on_begun(answer)

            with self._traces.inside(self._span):
                return begin(participating, noted)

        return begin_inside

    def ended(self, txn: TransactionWork) -> None:
        """End the span with the outcome."""
        self._span.note({"magnetar.txn.outcome": txn.status.name.lower()})
        self.end(txn.failure)

    def end(self, error: BaseException | None) -> None:
        """End the span. Repeating it is harmless."""
        if self._begun is not None:
            self._traces.ended(self._begun.txn_id, self._span)
        self._span.end("" if error is None else self._traces.error_type(error))


class OpenTransactions:
    """Begins transactions, and knows those that have not ended. Belongs to one client."""

    def __init__(
        self,
        cluster: Cluster,
        make_producer: Callable[[str], Awaitable[TopicProducer]],
        consumer_of: ConsumerOf,
    ) -> None:
        """No transaction is open yet.

        Args:
            make_producer: makes a producer of a topic, with default settings.
            consumer_of: returns the client's open consumer of this id; None: there is none.
        """
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._producers = TopicProducers(self._runtime, make_producer)
        self._consumer_of = consumer_of
        self._open: dict[int, TransactionWork] = {}
        # Spans of these, if the client makes traces.
        self._spans: dict[int, TransactionSpan] = {}
        self._coordinators = CoordinatorChoice(cluster)

    @property
    def runtime(self) -> Runtime:
        """The world of the client."""
        return self._runtime

    @property
    def config(self) -> ClientConfig:
        """The settings of the client."""
        return self._runtime.config

    async def coordinator_for(self, transactional_id: str) -> ConnectionBase:
        """Return the connection to the coordinator of a transactional id."""
        return await self._cluster.coordinator_for(transactional_id)

    async def outcome_of_prepared(
        self, transactional_id: str, prepared: PreparedTxnState
    ) -> TransactionStatus:
        """Ask for the status of a transaction that a database has committed."""
        return await outcome_of_prepared(self._cluster, transactional_id, prepared)

    async def begin(
        self,
        timeout_s: float = 60.0,
        *,
        lazy: bool = False,
        producers: TopicProducers | None = None,
    ) -> Transaction:
        """Open a transaction at any live coordinator: see Client.begin_transaction.

        Args:
            producers: those with which the transaction sends to topics by name; None: those that
                all transactions of the client share.
        """
        begin = partial(self._new_txn, int(timeout_s * 1000))
        return await self._open_one(begin, lazy=lazy, producers=producers)

    async def begin_named(
        self, name: str, sequence: int, run_token: str, timeout_s: float, fingerprint: str
    ) -> Transaction:
        """Join or open a named transaction: see Client.begin_named_transaction."""
        coordinator = await self._cluster.coordinator_for(name)
        named = NamedSequence(
            name=name, sequence=sequence, run_token=run_token, fingerprint=fingerprint
        )
        try:
            return await self._open_one(
                partial(self._new_txn_at, coordinator, int(timeout_s * 1000), None, named)
            )
        except SequenceCommitted as error:
            self._runtime.saw(int(error.details.get("stamp", 0)))
            raise

    async def begin_as(
        self, identity: ProducerIdentity, coordinator: ConnectionBase, producers: TopicProducers
    ) -> Transaction:
        """Open the transaction of a transactional producer.

        Args:
            producers: those with which the transaction sends to topics by name.
        Raises:
            ProducerFenced: another instance has taken over the transactional id.
            InvalidTxnState: the details have the identity's next pair, if it is not this one.
        """
        begin = partial(self._new_txn_at, coordinator, 0, identity, None)
        return await self._open_one(begin, producers=producers)

    async def commit_parts(
        self, parts: Sequence[TransactionPart], wait_finished: bool, fingerprint: str
    ) -> TransactionStatus:
        """Commit the work of several clients: see Client.commit_parts."""
        command = commit_parts(parts)
        command = command._replace(
            wait_finished=wait_finished,
            fingerprint=fingerprint,
            seen_stamp=max(command.seen_stamp, self._runtime.seen_stamp),
        )
        coordinator = await self._cluster.coordinator_of(parts[0].txn_id)
        reply: Ended = await coordinator.request(
            command, timeout_ms=self.config.commit_timeout_ms, patient=wait_finished
        )
        self._runtime.saw(reply.stamp)
        return TransactionStatus(reply.status)

    def fail(self, error: MagnetarError) -> None:
        """Fail all transactions, since the client has failed."""
        self._runtime.fail_each([txn.doom for txn in self._open.values()], error)

    async def abort_all(self) -> None:
        """Abort open transactions; all of them together within close_timeout_ms. Logs failures."""
        turns = asyncio.Semaphore(CLOSING_ABORTS_MAX)
        await asyncio.gather(*(self._close(txn, turns) for txn in self._open.values()))
        for txn in list(self._open.values()):
            self._end_span(txn)

    async def _close(self, txn: TransactionWork, turns: asyncio.Semaphore) -> None:
        try:
            # Waiting for a turn counts: all of them together take no longer than one may.
            async with asyncio.timeout(self.config.close_timeout_ms / 1000), turns:
                await txn.close()
        except (MagnetarError, TimeoutError) as error:
            log.info("closing: %r was not aborted: %s", txn, error)

    async def _open_one(
        self, begin: Begin, *, lazy: bool = False, producers: TopicProducers | None = None
    ) -> Transaction:
        producers = producers or self._producers
        if self._runtime.traces is not None:
            span = TransactionSpan(self._runtime.traces)
            return await self._open_traced(span, begin, lazy, producers)
        work = self._work(begin, producers)
        if not lazy:
            await work.begin()
        return self._opened(work, producers)

    async def _open_traced(
        self, span: TransactionSpan, begin: Begin, lazy: bool, producers: TopicProducers
    ) -> Transaction:
        work = self._work(span.around(begin), producers)
        try:
            if not lazy:
                await work.begin()
        except BaseException as error:
            span.end(error)
            raise
        self._spans[work.number] = span
        return self._opened(work, producers)

    def _work(self, begin: Begin, producers: TopicProducers) -> TransactionWork:
        return TransactionWork(self._runtime, begin, self._forget, forget_topic=producers.forget)

    def _opened(self, work: TransactionWork, producers: TopicProducers) -> Transaction:
        self._open[work.number] = work
        return Transaction(work, producers, self._consumer_of)

    def _forget(self, txn: TransactionWork) -> None:
        self._open.pop(txn.number, None)
        if self._spans:
            self._end_span(txn)

    def _end_span(self, txn: TransactionWork) -> None:
        span = self._spans.pop(txn.number, None)
        if span is not None:
            span.ended(txn)

    def _new_txn_at(
        self,
        coordinator: ConnectionBase,
        txn_timeout_ms: int,
        identity: ProducerIdentity | None,
        named: NamedSequence | None,
        participating: Sequence[Participant],
        on_begun: OnBegun,
    ) -> Callable[[], object]:
        command = NewTxn(
            txn_timeout_ms,
            _in_order(participating),
            None if identity is None else identity.to_wire(),
            named,
            0 if named is None else self._runtime.new_id(),
            seen_stamp=self._runtime.seen_stamp,
        )
        on_answer = partial(_tell, on_begun, command, identity, coordinator)
        return coordinator.request_soon(command, on_answer).cancel

    def _new_txn(
        self, txn_timeout_ms: int, participating: Sequence[Participant], on_begun: OnBegun
    ) -> Callable[[], object]:
        command = NewTxn(
            txn_timeout_ms,
            _in_order(participating),
            answer_before_durable=True,
            seen_stamp=self._runtime.seen_stamp,
        )
        on_answer = partial(_tell, on_begun, command, None)
        return self._coordinators.new_txn(command, on_answer)


def _tell(
    on_begun: OnBegun,
    command: NewTxn,
    identity: ProducerIdentity | None,
    coordinator: ConnectionBase | None,
    answer: Opened | MagnetarError,
) -> None:
    """Tell how a transaction has begun, or why it has not."""
    if isinstance(answer, MagnetarError):
        on_begun(answer)
        return
    assert coordinator is not None
    begun = Begun(
        answer.txn_id,
        answer.txn_timeout_ms or command.txn_timeout_ms,
        coordinator,
        identity,
        is_durable=not command.answer_before_durable,
        txn_proof=answer.txn_proof,
        seen_stamp=command.seen_stamp,
    )
    on_begun(begun)


def _in_order(participating: Sequence[Participant]) -> Sequence[Participant]:
    """Return participants as a message has them: partitions before subscriptions."""
    # A name of a subscription has one part more.
    return sorted(participating, key=len)
