"""Runs a coordinator: its log, its clock, its timers, and the order of what leaves it.

Commands are decided and applied at once, in order. Answers, refusals too, are parked until all that
they depend on is durable; so is everything that brokers are told. Whatever fails on the way to the
disk ends the process: memory has run ahead of it.
Source: docs/design/0001-protocol.md; rules a, b, c and f.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.directory import BrokerDirectory, SingleBroker
from magnetar_coordinator.finisher import Finisher, OnAnswer
from magnetar_coordinator.held import Verdict, judge
from magnetar_coordinator.identities import Identities, Names
from magnetar_coordinator.incarnation import IncarnationTaker
from magnetar_coordinator.metadata_store import (
    TransactionMetadataStore,
    TransactionMetadataStoreProvider,
)
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.records import StatusChanged, TxnEnded, TxnOpened
from magnetar_coordinator.retention import OutcomeRetention
from magnetar_coordinator.service import CoordinatorServer
from magnetar_coordinator.session_quota import SessionQuota
from magnetar_coordinator.shard import Decision, End, Shard, forgotten
from magnetar_coordinator.timers import Periodic
from magnetar_coordinator.transaction import (
    ACTION_OF,
    Participant,
    Transaction,
    TxnAction,
    TxnStatus,
)
from magnetar_core.clock import Clock
from magnetar_core.commands import Reply
from magnetar_core.errors import DataLoss, InternalError, MagnetarError
from magnetar_core.ids import TxnID
from magnetar_core.run_time import RunTime
from magnetar_core.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.disk_reserve import DiskReserve
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.read_metrics import CountedReads
from magnetar_storage.store import RowsUnreadable, Store, StoreFailed, cannot_recover

log = logging.getLogger(__name__)

# What the outcome of a transaction waits at most for a group that is written anyway.
_OUTCOME_DELAY_SECONDS = 0.005
# Of a producer id; its upper bits are the TCID.
PRODUCER_NUMBER_BITS = 47
_IDLE_CHECK_INTERVAL_MS = 60_000


class _State(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPED = auto()


class Coordinator:
    """One transaction coordinator.

    Args:
        store: opened with `records.FAMILIES`; it is not closed here.
        random: jitter, and the token of a new store.
        on_fatal: called once when it cannot go on: the process must end, and start again.
        directory: which broker serves a partition; by default the configured one serves all.
    """

    shard: Shard
    identities: Identities
    names: Names
    _metadata: TransactionMetadataStore
    _run_time: RunTime
    _retention: OutcomeRetention

    def __init__(
        self,
        config: CoordinatorConfig,
        store: Store,
        transport: Transport,
        clock: Clock,
        random: Random,
        on_fatal: Callable[[BaseException], None],
        registry: CollectorRegistry | None = None,
        *,
        directory: BrokerDirectory | None = None,
    ) -> None:
        self.config = config
        self.metrics = CoordinatorMetrics(registry or CollectorRegistry())
        self._store = store = CountedReads(store, self.metrics.reads)
        self._transport = transport
        self._clock = clock
        self._random = random
        self._on_fatal = on_fatal
        self._commits = GroupCommit(
            store, on_failure=self.fail, observe=self.metrics.commits.observe
        )
        self._finisher = Finisher(
            config,
            transport,
            clock,
            random,
            directory or SingleBroker(config.broker_address),
            self.metrics,
            on_finished=self._on_finished,
            judge_held=self._judge_held,
            when_durable=lambda call: self._commits.when_durable(self._commits.position(), call),
            on_expelled=self._abort_expelled,
        )
        self._timers = [
            Periodic(config.expiry_check_interval_ms, self._expire, self.fail),
            Periodic(config.run_time_persist_interval_ms, self._note_time, self.fail),
            Periodic(config.watermark_interval_ms, self._advance_watermark, self.fail),
        ]
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._removing = False
        self._next_idle_check_ms = 0
        # Who waits until a transaction has ended everywhere.
        self._waiting: dict[TxnID, list[Reply]] = {}
        self._ending: dict[TxnID, list[Callable[[], None]]] = {}
        # Every participant has answered; their outcomes wait for a group to join.
        self._finished: list[TxnID] = []
        self._finished_timer: asyncio.TimerHandle | None = None
        self._telling_issued = False
        # Brokers hear of nothing beyond it.
        self._durable_bound = 0
        self._disk_reserve = DiskReserve(store, clock, floor_bytes=config.free_space_floor_bytes)
        self._state = _State.STARTING
        self.session_quota = SessionQuota(config.session_open_txns_max)
        self.server = CoordinatorServer(self)

    # Life.

    async def start(self) -> None:
        """Recover and begin to serve. A new store first takes its incarnation, and waits for it.

        Raises:
            InvalidConfig: the store belongs to another coordinator.
            ClusterMismatch: the store belongs to another cluster.
            StoreDamaged: something that everything depends on cannot be read.
            StoreFailed: it cannot be written.
        Source: PIP-31, TC Startup.
        """
        try:
            await self._recover()
        except RowsUnreadable as error:
            raise cannot_recover(error) from error
        self._state = _State.SERVING
        self._finisher.start()
        self._resume()
        self._expire()
        self._advance_watermark()
        for timer in self._timers:
            timer.start()

    async def _recover(self) -> None:
        await self._commits.start()
        config = self.config
        provider = TransactionMetadataStoreProvider(
            self._store, self._commits, config, self._random, self._take_incarnation
        )
        try:
            self._metadata = await provider.open_store(config.tcid)
        except BaseException:
            await self._commits.close()
            raise
        self.shard = Shard(
            config,
            tcid=config.tcid,
            incarnation=self._metadata.incarnation,
            next_counter=self._metadata.counter_bound,
        )
        metadata = self._metadata
        self._durable_bound = metadata.counter_bound
        self.identities = Identities(
            config,
            new_producer_id=self._new_producer_id,
            put=metadata.put_identity,
            delete=metadata.delete_identity,
        )
        self.names = Names(config, put=metadata.put_name, delete=metadata.delete_name)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async for identity in metadata.identities():
            self.identities.restore(identity)
        async for name in metadata.names():
            self.names.restore(name)
        run_time_ms = self._metadata.run_time_ms
        async for record in self._metadata.live_records():
            transaction = self.shard.apply(record)
            if transaction is not None:
                # Persisted less often than it is used.
                run_time_ms = max(run_time_ms, transaction.start_run_time_ms)
        self.metrics.recovery_seconds.set(loop.time() - began_s)
        self._run_time = RunTime(
            self._clock, start_ms=run_time_ms, jump_ms_min=config.clock_jump_ms_min
        )
        self._retention = OutcomeRetention(self._metadata, config)
        counts = self.shard.status_counts
        log.info(
            "recovered %s",
            ", ".join(f"{count} {status.name}" for status, count in counts.items()),
        )

    async def close(self) -> None:
        """Take no more commands, answer what was taken, and persist the run time.

        Raises:
            StoreFailed: something that was taken may be lost; nobody was told that it was kept.
        """
        was_serving = self._state is _State.SERVING
        self._stop()
        await self._finisher.close()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        if was_serving:
            self._metadata.persist_run_time(self.run_time_ms())
        await self._commits.close()

    def abandon(self) -> None:
        """Drop everything where it is, as a crash would; the store must not be used any more."""
        self._stop()

    def fail(self, error: BaseException) -> None:
        """Something is wrong that only a restart cures. Repeating it is harmless."""
        if self._state is _State.STOPPED:
            return
        log.critical("the coordinator cannot go on: %r", error)
        self._stop()
        self._on_fatal(error)

    def _stop(self) -> None:
        self._state = _State.STOPPED
        for timer in self._timers:
            timer.stop()
        self._finisher.stop()
        if self._finished_timer is not None:
            # After the next start the participants are asked again, and answer the same.
            self._finished_timer.cancel()
        for task in self._tasks:
            task.cancel()

    # For the service.

    @property
    def is_serving(self) -> bool:
        """From the end of recovery until the beginning of the end."""
        return self._state is _State.SERVING

    def check_free_space(self) -> None:
        """Raises: DiskFull below the floor; the rest is for ends and deletes."""
        self._disk_reserve.check()

    def run_time_ms(self) -> int:
        return self._run_time.now_ms()

    def time_ms(self) -> int:
        return self._clock.wall_ms()

    def carry_out(self, decision: Decision) -> None:
        """Append and apply what was decided; participants hear of it when it is durable."""
        transaction: Transaction | None = None
        try:
            for record in decision.records:
                before = self.shard.live.get(record.txn_id)
                self._metadata.append(record, 0 if before is None else before.record_count)
                transaction = self.shard.apply(record)
                if type(record) is StatusChanged:
                    self._on_fixed(record.txn_id, ACTION_OF[record.new], record.fingerprint)
                elif type(record) is TxnOpened:
                    self._tell_issued_soon()
                elif type(record) is TxnEnded:
                    self.identities.completed(record.txn_id)
        except Exception as error:
            self.fail(error)
            raise
        if decision.fixed and transaction is not None:
            if transaction.unfinished:
                finish = partial(self._finisher.finish, transaction)
                self._commits.when_durable(self._commits.position(), finish)
            else:
                # Nobody to tell: it ends in the same group.
                self._on_participants_ended(transaction.txn_id)
        # Not before: what was decided may be about one of these.
        if self._finished:
            self._conclude()

    def _on_fixed(self, txn_id: TxnID, action: TxnAction, fingerprint: str) -> None:
        self.session_quota.fixed(txn_id)
        self.identities.fixed(txn_id, action, run_time_ms=self.run_time_ms())
        self.names.fixed(txn_id, action, fingerprint)

    def _new_producer_id(self) -> int:
        """Unique in the cluster, and never given out again."""
        return self.config.tcid << PRODUCER_NUMBER_BITS | self._metadata.new_producer_number()

    def when_ended(self, txn_id: TxnID, callback: Callable[[], None]) -> None:
        """Call back when a live transaction has durably ended everywhere."""
        self._ending.setdefault(txn_id, []).append(callback)

    def answer(self, reply: Reply, body: Any) -> None:
        """Send an answer when everything applied so far is durable."""
        self._commits.when_durable(self._commits.position(), partial(reply.send, body))

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal when everything that it may depend on is durable."""

        def leave() -> None:
            self.metrics.refusals.labels(type(error).__name__).inc()
            reply.fail(error)

        self._commits.when_durable(self._commits.position(), leave)

    def answer_when_ended(self, txn_id: TxnID, reply: Reply) -> None:
        """Answer an end when every participant has ended the live transaction."""
        waiting = self._waiting.setdefault(txn_id, [])
        waiting[:] = [one for one in waiting if one.session is None or not one.session.closed]
        waiting.append(reply)

    def answer_from_outcome(
        self, txn_id: TxnID, reply: Reply, answer: Callable[[TxnEnded], Any]
    ) -> None:
        """Look up how a transaction ended, and answer accordingly, with TxnForgotten if need be."""

        async def work() -> Any:
            outcome = await self._metadata.outcome(txn_id)
            if outcome is None:
                raise forgotten(txn_id)
            return answer(outcome)

        self.answer_later(reply, work())

    def answer_later(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with what `work` returns, or with the error that it raises."""
        self._spawn(self._answer_later(reply, work))

    async def outcomes_before(
        self, end: bytes | None, *, rows_max: int
    ) -> list[tuple[bytes, TxnEnded]]:
        """Written outcomes below a key, or from the last one on, the newest TxnIDs first."""
        return await self._metadata.outcomes_before(end, rows_max=rows_max)

    def retry_when_durable(self, txn_id: TxnID) -> None:
        """Have the participants of a transaction asked again."""
        position = self._commits.position()
        self._commits.when_durable(position, partial(self._finisher.retry, txn_id))

    def abort_hanging(self, participant: Participant, body: Any, on_answer: OnAnswer) -> None:
        """Have a broker abort what is open there only, once that it is not open here is durable."""
        position = self._commits.position()
        ask = partial(self._finisher.abort_hanging, participant, body, on_answer)
        self._commits.when_durable(position, ask)

    def answer_opened(self, reply: Reply, body: Any) -> None:
        """Tell a new TxnID when it is durable; it counts from then on."""
        self._commits.when_durable(self._commits.position(), partial(self._tell, reply, body))

    def _tell(self, reply: Reply, body: Any) -> None:
        self.metrics.opened.inc()
        reply.send(body)

    # Ends.

    def _resume(self) -> None:
        """PIP-31, TC Transaction Expiration, steps 2 and 3: go on with what was being ended."""
        undecided = frozenset({TxnStatus.COMMITTING, TxnStatus.ABORTING})
        for transaction in list(self.shard.select(undecided)):
            self._finisher.finish(transaction)

    def _on_finished(self, txn_id: TxnID) -> None:
        """Every participant has answered.

        Nobody hurries for the outcome, unless they said so: in a group of its own it would cost a
        sync, and hold up the next command's.
        """
        hurried = txn_id in self._waiting or txn_id in self._ending
        if hurried or self._commits.batch.operations:
            self._on_participants_ended(txn_id)
            return
        self._finished.append(txn_id)
        if self._finished_timer is None:
            loop = asyncio.get_running_loop()
            self._finished_timer = loop.call_later(_OUTCOME_DELAY_SECONDS, self._conclude)

    def _conclude(self) -> None:
        if self._finished_timer is not None:
            self._finished_timer.cancel()
            self._finished_timer = None
        finished, self._finished = self._finished, []
        for txn_id in finished:
            self._on_participants_ended(txn_id)

    def _on_participants_ended(self, txn_id: TxnID) -> None:
        if self._state is not _State.SERVING:
            return
        decision = self.shard.participants_ended(
            txn_id, run_time_ms=self.run_time_ms(), time_ms=self.time_ms()
        )
        self.carry_out(decision)
        ended = partial(self._on_outcome_durable, txn_id, decision.status)
        self._commits.when_durable(self._commits.position(), ended)

    def _on_outcome_durable(self, txn_id: TxnID, status: TxnStatus) -> None:
        self.shard.outcome_durable(txn_id)
        self.metrics.ended[status].inc()
        waiting = self._waiting.pop(txn_id, None)
        if waiting is not None:
            for reply in waiting:
                reply.send(self.server.ended(txn_id, status))
        for callback in self._ending.pop(txn_id, ()):
            callback()

    def _expire(self) -> None:
        """PIP-31, TC Transaction Expiration, step 1."""
        expired = self.shard.expiry.expired(
            self.run_time_ms(), count_max=self.config.expiries_per_check_max
        )
        for txn_id in expired:
            log.info("transaction %s has expired", txn_id, extra={"txn_id": txn_id})
            self.carry_out(self.shard.expire(txn_id, time_ms=self.time_ms()))
            self.metrics.expired.inc()

    def _abort_expelled(self, txn_ids: list[TxnID]) -> None:
        """Members that a group expelled took part in these: others wait for their end.

        What is being ended is left to its end; so is what never expires, for its owner decides.
        """
        if self._state is not _State.SERVING:
            return
        for txn_id in txn_ids:
            transaction = self.shard.live.get(txn_id)
            if transaction is None or transaction.status is not TxnStatus.OPEN:
                continue
            if transaction.expires:
                log.info(
                    "transaction %s is aborted: a member of a group that took part is gone",
                    txn_id,
                    extra={"txn_id": txn_id},
                )
                abort = End(txn_id, TxnAction.ABORT)
                self.carry_out(self.shard.end(abort, time_ms=self.time_ms()))
                self.metrics.expelled.inc()

    # Time.

    def _note_time(self) -> None:
        self._disk_reserve.look()
        run_time_ms = self.run_time_ms()
        checks_idle = len(self.identities) > 0 and run_time_ms >= self._next_idle_check_ms
        if self.shard.live or checks_idle:
            self._metadata.persist_run_time(run_time_ms)
        jump_ms = self._run_time.wall_jump_ms()
        if jump_ms:
            self.metrics.clock_jumps.inc()
            log.warning("the wall clock jumped by %d ms; nothing depends on it", jump_ms)
        outcome_count = self._metadata.outcome_count
        self.metrics.show(
            self.shard,
            run_time_ms=run_time_ms,
            outcome_count=outcome_count,
            identity_count=len(self.identities),
            oldest_finishing_ms=self._finisher.oldest_ms(),
        )
        if checks_idle:
            self._next_idle_check_ms = run_time_ms + _IDLE_CHECK_INTERVAL_MS
            for idle in self.identities.forget_idle(run_time_ms):
                log.info("transactional id %r was idle for long; it is forgotten", idle)
        if not self._removing and outcome_count:
            self._removing = True
            self._spawn(self._remove_outcomes(run_time_ms))

    async def _remove_outcomes(self, run_time_ms: int) -> None:
        try:
            # What cannot be read stays; it was logged and counted.
            with suppress(RowsUnreadable):
                await self._retention.remove(run_time_ms)
        except StoreFailed as error:
            self.fail(error)
        finally:
            self._removing = False

    # Brokers.

    def _advance_watermark(self) -> None:
        watermark = self.shard.watermark.advance(self.run_time_ms())
        self._metadata.reserve(self.shard.next_counter)
        command = pb.CommandLowWatermark(
            tcid=self.config.tcid,
            incarnation=self.shard.incarnation,
            low_watermark=watermark.low_watermark,
            live=[pb.TxnRange(first=first, last=last) for first, last in watermark.live],
            counter_bound=self._metadata.counter_bound,
            next_counter=self.shard.next_counter,
        )
        tell = partial(self._tell_watermark, command)
        self._commits.when_durable(self._commits.position(), tell)

    def _tell_watermark(self, command: pb.CommandLowWatermark) -> None:
        self._durable_bound = max(self._durable_bound, command.counter_bound)
        self._finisher.tell_watermark(command)

    def _tell_issued_soon(self) -> None:
        """Brokers hear of new TxnIDs before clients, who are told when they are durable.

        Should they be lost before that, nobody is given them: a restart passes them over.
        """
        if not self._telling_issued:
            self._telling_issued = True
            asyncio.get_running_loop().call_soon(self._tell_issued)

    def _tell_issued(self) -> None:
        self._telling_issued = False
        next_counter, counter_bound = self.shard.next_counter, self._metadata.counter_bound
        if next_counter <= self._durable_bound:
            self._announce(next_counter, self._durable_bound)
        else:
            # Lost before it is durable, it would be issued again.
            announce = partial(self._announce, next_counter, counter_bound)
            self._commits.when_durable(self._commits.position(), announce)

    def _announce(self, next_counter: int, counter_bound: int) -> None:
        self._durable_bound = max(self._durable_bound, counter_bound)
        issued = pb.CommandTxnsIssued(
            tcid=self.config.tcid,
            incarnation=self.shard.incarnation,
            next_counter=next_counter,
        )
        self._finisher.tell_issued(issued, self._durable_bound)

    def _judge_held(self, txn_id: TxnID, participant: Participant) -> Verdict:
        self.pass_over(txn_id)
        return judge(self.shard, txn_id, participant)

    def pass_over(self, txn_id: TxnID) -> None:
        """Never issue what somebody has made up, if brokers may have taken it for issued."""
        shard = self.shard
        if shard.is_issued(txn_id) or not shard.is_own(txn_id):
            return
        if txn_id.counter < self._metadata.counter_bound:
            log.warning("transaction %s was made up: it will never be issued", txn_id)
            shard.skip(txn_id)
            # At once: what is issued next may lie close to the bound, or beyond it.
            self._advance_watermark()

    async def _take_incarnation(self, tcid: int, store_token: str) -> int:
        config = self.config
        address = config.metadata_broker_address or config.broker_address
        taker = IncarnationTaker(address, self._transport, config, self._random)
        return await taker.take(tcid, store_token)

    # Tasks.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]

    async def _answer_later(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.answer(reply, await work)
        except StoreFailed as error:
            self.fail(error)
        except RowsUnreadable as error:
            self.refuse(DataLoss(f"what is asked for cannot be read: {error}"), reply)
        except MagnetarError as error:
            self.refuse(error, reply)
        except Exception:
            log.exception("a command could not be answered")
            reply.fail(InternalError("the server failed on this command; its log says how"))
