"""Interface of a running coordinator to services, timers and peers: decide, answer, park.

Commands are decided and applied at once, in order. Answers, and refusals too, are parked until all
records that they depend on are durable; so is everything that brokers are told. Any failure on the
way to the disk ends the process: memory has run ahead of the disk.
Source: docs/design/0001-protocol.md; rules a, b, c and f.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.brokers import Brokers
from magnetar_coordinator.ending.cut_closings import CutClosings
from magnetar_coordinator.ending.finisher import Finisher
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.metadata.records import Record, StatusChanged, TxnEnded, TxnOpened
from magnetar_coordinator.metadata.transaction import (
    BY_CLIENT,
    UNKNOWN_CAUSE,
    Cause,
    Participant,
    Transaction,
    TxnOwner,
    TxnStatus,
)
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.parking import Parking
from magnetar_coordinator.transactions import causes, responses
from magnetar_coordinator.transactions.decision import Decision, EndTxnRequest, forgotten
from magnetar_coordinator.transactions.history_events import (
    event_of,
    event_of_answer,
    recovery_event,
)
from magnetar_coordinator.transactions.named_sequence_table import NamedSequences
from magnetar_coordinator.transactions.principal_quota import PrincipalQuota
from magnetar_coordinator.transactions.session_quota import SessionQuota
from magnetar_coordinator.transactions.shard import Shard
from magnetar_coordinator.transactions.transaction_changes import TransactionChanges
from magnetar_coordinator.transactions.transaction_principal import recorded
from magnetar_coordinator.transactions.transactional_ids import TransactionalIds
from magnetar_core.clock import Clock
from magnetar_core.errors import DataLoss, LogUnavailable, MagnetarError
from magnetar_core.history.events import Event
from magnetar_core.history.history import History
from magnetar_core.ids import TxnID
from magnetar_core.process.run_time import RunTime
from magnetar_core.server.commands import Reply, internal_failure, send_together
from magnetar_core.transport.columns.end_txns import Ended
from magnetar_storage.disk_reserve import DiskReserve
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.ready_callbacks import guard
from magnetar_storage.store import RowsUnreadable, StoreFailed

log = logging.getLogger(__name__)

# An object store in another region takes a tenth of a second for a group.
_SLOW_GROUP_SECONDS = 0.5


class Recovered(NamedTuple):
    """Memory of a coordinator that has read its store."""

    metadata: TransactionMetadataStore
    shard: Shard
    transactional_ids: TransactionalIds
    named_sequences: NamedSequences
    run_time: RunTime

    def forget(self, txn_id: TxnID) -> None:
        """Forget a transaction that has ended everywhere, and has no known outcome (rule n)."""
        log.warning(
            "transaction %s had ended before the loss, and how is forgotten",
            txn_id,
            extra={"txn_id": txn_id},
        )
        self.metadata.forget(txn_id, self.shard.live[txn_id].record_count)
        self.shard.forget(txn_id)
        self.transactional_ids.forget(txn_id, run_time_ms=self.run_time.now_ms())
        self.named_sequences.forget(txn_id)


class OutcomeFollower(Protocol):
    """Object whose state changes with a transaction's outcome, in the group that fixes it."""

    @property
    def followed(self) -> Container[TxnID]:
        """Return the transactions for which it does."""
        ...

    def fixed(self, record: StatusChanged, *, run_time_ms: int) -> None:
        """Note that the outcome of a transaction is fixed."""


class Runtime:
    """The inside of a coordinator.

    Args:
        fail: called with an error that only a restart cures.
        traces: makes the spans of ends; None: there are none.
        history: notes the events of the protocol; None: there is none.
    Attributes:
        is_serving: from the end of recovery until the beginning of the end.
        when_durable: calls back when all records applied so far are durable.
        time_ms: returns the wall clock, in milliseconds since the Unix epoch.
        run_time_ms: returns the coordinator's run time, in milliseconds.
    """

    metadata: TransactionMetadataStore
    shard: Shard
    transactional_ids: TransactionalIds
    named_sequences: NamedSequences
    run_time: RunTime
    run_time_ms: Callable[[], int]
    _followers: tuple[OutcomeFollower, ...]

    def __init__(
        self,
        config: CoordinatorConfig,
        commits: GroupCommit,
        parking: Parking,
        brokers: Brokers,
        finisher: Finisher,
        changes: TransactionChanges,
        clock: Clock,
        metrics: CoordinatorMetrics,
        disk_reserve: DiskReserve,
        fail: Callable[[BaseException], None],
        traces: TransactionTraces | None = None,
        history: History | None = None,
    ) -> None:
        self.history = history
        self.config = config
        self.parking = parking
        self.brokers = brokers
        self.finisher = finisher
        self.metrics = metrics
        self.disk_reserve = disk_reserve
        self.fail = fail
        self.changes = changes
        self.session_quota = SessionQuota(config.session_open_txns_max, self._client_left)
        self.principal_quota = PrincipalQuota()
        self.cut_closings = CutClosings()
        self.is_serving = False
        # By the wall clock, for people.
        self.started_time_ms = clock.wall_ms()
        self.monotonic_ms = clock.monotonic_ms
        self._commits = commits
        self.when_durable = parking.when_durable
        self.time_ms = clock.wall_ms
        self._traces = traces
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Replies that wait until a transaction has ended everywhere.
        self._waiting: dict[TxnID, list[Reply]] = {}
        self._ending: dict[TxnID, list[Callable[[], None]]] = {}

    def serve(self, recovered: Recovered) -> None:
        """Begin to take commands: the store is read."""
        self.metadata, self.shard, self.transactional_ids, self.named_sequences, self.run_time = (
            recovered
        )
        self.run_time_ms = self.run_time.now_ms
        self.principal_quota.recover(self.shard.live.values())
        if self.history is not None:
            self.history.note(recovery_event(self.shard, self.metadata.lost))
        self._followers = (
            self.session_quota,
            self.principal_quota,
            self.transactional_ids,
            self.named_sequences,
        )
        self.is_serving = True

    def stop(self) -> None:
        """Stop taking commands."""
        self.is_serving = False
        self.cut_closings.drop()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Wait until all stopped tasks have ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    # Deciding.

    def hear(self, stamp: int) -> None:
        """Give higher stamps from now on; that is durable with whatever is decided next.

        Args:
            stamp: the highest that a client has seen; 0: none.
        Raises:
            InvalidArgument: it lies too far in the future. No effect.
        """
        clock = self.shard.clock
        if stamp > clock.last:
            clock.hear(stamp, self.time_ms())
            self.metadata.reserve_stamps(clock.last)

    def end(
        self, end: EndTxnRequest, reply: Reply, *, until_ended: bool, by_hand: bool = False
    ) -> None:
        """Fix a transaction's outcome, and answer when that is durable.

        Args:
            until_ended: answer only when every participant has ended it.
            by_hand: the client does not work in the transaction.
        Raises:
            TxnNotFound: as Shard.end. No effect.
            InvalidTxnState: as Shard.end. No effect.
            InvalidArgument: as Shard.end. No effect.
            OutcomeMissing: as Shard.end. No effect.
        """
        self.hear(end.seen_stamp)
        decision = self.shard.end(end, time_ms=self.time_ms())
        if self._traces is not None and decision.record is not None:
            self._traces.note(end.txn_id, reply.span)
        cause = causes.by_hand(reply) if by_hand else BY_CLIENT
        # Before it is carried out: without participants it ends on the spot.
        if until_ended and end.txn_id in self.shard.live:
            self._answer_when_ended(end.txn_id, reply)
            self.carry_out(decision, cause)
        else:
            self.carry_out(decision, cause)
            self.answer(reply, self.ended(end.txn_id, decision.status, decision.stamp))

    def carry_out(self, decision: Decision, cause: Cause = UNKNOWN_CAUSE) -> Transaction | None:
        """Append and apply a decision's record; participants are told when it is durable.

        Args:
            cause: of a decision that fixes an outcome.
        Returns:
            The transaction that the record left behind; None: there is no record, or it has ended.
        Raises:
            LogUnavailable: the coordinator is stopping. No effect.
        """
        record = decision.record
        if record is None:
            return None
        if not self.is_serving:
            # A command before this one, of the same run, has failed half-way.
            raise LogUnavailable("the coordinator is stopping; ask again")
        if self._traces is not None:
            record = self._traces.marked(record)
        try:
            transaction = self._apply(record)
        except Exception as error:
            self.fail(error)
            raise
        if transaction is not None and type(record) is StatusChanged:
            transaction.cause = cause
            if transaction.unfinished:
                self.parking.gather(self._finish, transaction)
            else:
                # Without participants the transaction ends in the same group.
                self._on_participants_ended((transaction.txn_id,))
        return transaction

    def _apply(self, record: Record) -> Transaction | None:
        """Put a record into the open group, and change memory by it in the same step."""
        before = self.shard.live.get(record.txn_id)
        self.metadata.append(record, 0 if before is None else before.record_count)
        transaction = self.shard.apply(record)
        if self.changes.is_followed:
            self.changes.note(record.txn_id, record if isinstance(record, TxnEnded) else None)
        if self.history is not None:
            self.history.note(event_of(record))
        if isinstance(record, StatusChanged):
            for follower in self._followers:
                if record.txn_id in follower.followed:
                    follower.fixed(record, run_time_ms=self.run_time_ms())
        elif isinstance(record, TxnOpened):
            self.brokers.tell_issued_soon()
        elif isinstance(record, TxnEnded) and record.txn_owner is not None:
            self.transactional_ids.completed(record.txn_id)
        return transaction

    def open(
        self,
        participants: Iterable[Participant],
        reply: Reply,
        *,
        timeout_ms: int,
        txn_owner: TxnOwner | None = None,
        expires: bool = True,
        hurried: bool = True,
        ledger_ids: Sequence[int] = (),
    ) -> Transaction:
        """Open a transaction for a client. The caller sends the answer.

        Args:
            hurried: False: no caller waits for the record.
        Raises:
            DiskFull: the disk's reserve is reached.
            QuotaExceeded: the client has begun too many, or as Shard.new_txn.
            InvalidArgument: as Shard.new_txn.
        """
        self.disk_reserve.check()
        self.session_quota.check(reply)
        self.principal_quota.check(reply.rights)
        decision = self.shard.new_txn(
            timeout_ms,
            participants,
            run_time_ms=self.run_time_ms(),
            time_ms=self.time_ms(),
            txn_owner=txn_owner,
            principal=recorded(reply.principal),
            expires=expires,
            ledger_ids=ledger_ids,
        )
        with nullcontext() if hurried else self._commits.unhurried():
            transaction = self.carry_out(decision)
        assert transaction is not None
        if self._traces is not None:
            self._traces.note(transaction.txn_id, reply.span)
        self.session_quota.begun(reply, transaction)
        self.principal_quota.begun(transaction)
        return transaction

    def _client_left(self, txn_id: TxnID) -> None:
        """Note that the client of an OPEN transaction is gone."""
        self.changes.progressed(txn_id)

    # Answering.

    def answer(self, reply: Reply, body: Any, told: Event | None = None) -> None:
        """Send an answer when all records applied so far are durable.

        Args:
            told: what the answer tells, for the history; None: the body says it, or nothing is.
        """
        self.parking.gather(self._send_all, (reply, body, told))

    def _send_all(self, answers: Sequence[tuple[Reply, Any, Event | None]]) -> None:
        if self.history is not None:
            for _, body, told in answers:
                self._note_told(told or event_of_answer(body, is_early=False))
        send_together([(reply, body) for reply, body, _ in answers])

    def _note_told(self, told: Event | None) -> None:
        if self.history is not None and told is not None:
            self.history.note(told)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal when all records that it may depend on are durable."""

        def leave() -> None:
            self.metrics.refusals.labels(type(error).__name__).inc()
            reply.fail(error)

        self.when_durable(leave)

    def ended(self, txn_id: TxnID, status: TxnStatus, stamp: int) -> Ended:
        """Build the response to EndTxn: with the next pair, if a transactional producer owns it."""
        return responses.ended(txn_id, status, self.transactional_ids.of_txn(txn_id), stamp)

    def answer_opened(self, reply: Reply, body: Any) -> None:
        """Send a new TxnID when it is durable; its timeout and quota begin then."""
        self.parking.gather(self._tell, (reply, body))

    def answer_issued(self, reply: Reply, body: Any) -> None:
        """Send a new TxnID when it can never be issued again, before its record is durable.

        While the store does not get on, the answer waits: clients may prefer another coordinator.
        """
        self.parking.collect(self._answer_issued, (reply, body))

    def _answer_issued(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        if self._commits.seconds_under_way() > _SLOW_GROUP_SECONDS:
            self.when_durable(self._tell, answers)
        else:
            self.brokers.when_told(partial(self._tell, answers, is_early=True))

    def _tell(self, answers: Sequence[tuple[Reply, Any]], *, is_early: bool = False) -> None:
        self.metrics.opened.inc(len(answers))
        if self.history is not None:
            for _, body in answers:
                self._note_told(event_of_answer(body, is_early=is_early))
        send_together(answers)

    def look_up(self, txn_id: TxnID, reply: Reply, again: Callable[[], None]) -> None:
        """Look up how a transaction ended, and give the command again with its outcome.

        Answers TxnForgotten when the outcome is no longer kept.
        """

        async def work() -> None:
            outcome = await self.metadata.outcome(txn_id)
            if outcome is None:
                raise forgotten(txn_id)
            with self.shard.recalling(outcome):
                again()

        self.spawn(self._or_refuse(reply, work()))

    def answer_later(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with the result of a coroutine, or with the error that it raises."""

        async def answer() -> None:
            self.answer(reply, await work)

        self.spawn(self._or_refuse(reply, answer()))

    async def _or_refuse(self, reply: Reply, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StoreFailed as error:
            self.fail(error)
        except RowsUnreadable as error:
            self.refuse(DataLoss(f"the requested rows cannot be read: {error}"), reply)
        except MagnetarError as error:
            self.refuse(error, reply)
        except Exception:
            log.exception("a command could not be answered")
            reply.fail(internal_failure())

    def _answer_when_ended(self, txn_id: TxnID, reply: Reply) -> None:
        """Answer a request to end when every participant has ended the live transaction."""
        waiting = self._waiting.setdefault(txn_id, [])
        waiting[:] = [one for one in waiting if one.session is None or not one.session.closed]
        waiting.append(reply)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the coordinator."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]

    # Ends.

    def _finish(self, transactions: Iterable[Transaction]) -> None:
        """Tell participants how transactions end: the decisions are durable."""
        self.finisher.finish(transactions, self.on_finished)

    def when_ended(self, txn_id: TxnID, callback: Callable[[], None]) -> None:
        """Call back when a live transaction has durably ended everywhere."""
        self._ending.setdefault(txn_id, []).append(callback)

    def on_finished(self, txn_id: TxnID) -> None:
        """Note that every participant of a transaction has answered."""
        self.parking.collect(self._on_all_finished, txn_id)

    def trace_id(self, txn_id: TxnID) -> str:
        """Return the id of a transaction's trace; empty: it is not known to be traced."""
        return "" if self._traces is None else self._traces.trace_id(txn_id)

    def _on_all_finished(self, txn_ids: Sequence[TxnID]) -> None:
        """Give transactions that all participants have ended their outcomes.

        These do not hurry, unless a client asked to wait for one: in a group of their own they
        would cost a sync, and delay the next command's sync.
        """
        hurries = bool(self.cut_closings) or any(
            txn_id in self._waiting or txn_id in self._ending for txn_id in txn_ids
        )
        with nullcontext() if hurries else self._commits.unhurried():
            self._on_participants_ended(txn_ids)

    def _on_participants_ended(self, txn_ids: Sequence[TxnID]) -> None:
        run_time_ms, time_ms = self.run_time_ms(), self.time_ms()
        ended: list[tuple[TxnID, TxnStatus, int]] = []
        for txn_id in txn_ids:
            if not self.is_serving:
                break
            decision = self.shard.participants_ended(
                txn_id, run_time_ms=run_time_ms, time_ms=time_ms
            )
            self.carry_out(decision)
            if self._traces is not None:
                self._traces.forget(txn_id)
            self.cut_closings.finished(txn_id)
            ended.append((txn_id, decision.status, decision.stamp))
        self.when_durable(self._on_outcomes_durable, ended)

    def _on_outcomes_durable(self, ended: Sequence[tuple[TxnID, TxnStatus, int]]) -> None:
        for txn_id, _, _ in ended:
            self.shard.outcome_durable(txn_id)
        for status, count in Counter([status for _, status, _ in ended]).items():
            self.metrics.ended[status].inc(count)
        for txn_id, status, stamp in ended:
            for reply in self._waiting.pop(txn_id, ()):
                guard(self._send_all, [(reply, self.ended(txn_id, status, stamp), None)])
            for callback in self._ending.pop(txn_id, ()):
                guard(callback)
