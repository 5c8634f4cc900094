"""A coordinator: its parts, and its life from recovery to the end.

Its work while it serves is in runtime.py, upkeep.py and brokers.py.
Source: PIP-31, TC Startup; docs/design/0001-protocol.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from random import Random

from prometheus_client import CollectorRegistry

from magnetar_coordinator.broker_question import BrokerQuestion
from magnetar_coordinator.commands.service import CoordinatorServer
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.brokers import Brokers
from magnetar_coordinator.ending.finisher import Finisher
from magnetar_coordinator.ending.past_ends import PastEnds, open_before_loss, past_ends
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.metadata.records import FAMILIES, PRODUCER_NUMBER_BITS
from magnetar_coordinator.metadata_store import (
    TransactionMetadataStore,
    TransactionMetadataStoreProvider,
)
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_coordinator.parking import Parking
from magnetar_coordinator.runtime import Recovered, Runtime
from magnetar_coordinator.transactions.named_sequence_table import NamedSequences
from magnetar_coordinator.transactions.shard import Shard
from magnetar_coordinator.transactions.transaction_changes import TransactionChanges
from magnetar_coordinator.transactions.transactional_ids import TransactionalIds
from magnetar_coordinator.upkeep import Upkeep
from magnetar_core.clock import Clock
from magnetar_core.history.history import History
from magnetar_core.ids import TxnID
from magnetar_core.process.run_time import RunTime
from magnetar_core.server.commands import Handler
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import topic_pb2
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.backup_source import BackupSource
from magnetar_storage.disk_reserve import DiskReserve
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.read_metrics import CountedReads
from magnetar_storage.store import RowsUnreadable, Store, cannot_recover

log = logging.getLogger(__name__)


class Periodic:
    """Calls back at an interval until it is stopped.

    Args:
        on_failure: called with the callback's exception; the callback then no longer runs.
    """

    def __init__(
        self,
        interval_ms: int,
        callback: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._interval_seconds = interval_ms / 1_000
        self._callback = callback
        self._on_failure = on_failure
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin; the first call comes after an interval."""
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(self._interval_seconds, self._run)

    def stop(self) -> None:
        """Stop calling back."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        if self._stopped:
            return
        try:
            self._callback()
        except Exception as error:
            self._on_failure(error)
            return
        if not self._stopped:
            self.start()


# Fetch a new store's incarnation from the broker that keeps the cluster's metadata.
# So no TxnID is ever issued twice, not even after the loss of a coordinator's disk.
async def take_incarnation(question: BrokerQuestion, tcid: int, store_token: str) -> int:
    """Ask until the broker answers; asking again with the same token is harmless."""
    log.info("asking for the incarnation of a new store")
    request = topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=store_token)
    answer: topic_pb2.CommandTakeIncarnationResponse = await question.ask(
        request, "take_incarnation_response"
    )
    return answer.incarnation


class _State(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPED = auto()


class Coordinator:
    """A transaction coordinator.

    Args:
        store: opened with `records.FAMILIES`; the coordinator does not close it.
        random: for jitter, and for the token of a new store.
        on_fatal: called once when the coordinator cannot go on: the process must end and restart.
        traces: makes spans; None: there are none.
        history: notes the events of the protocol; None: there is none.
        membership: handlers of commands about members of the cluster, of the process.
    """

    _metadata: TransactionMetadataStore

    def __init__(
        self,
        config: CoordinatorConfig,
        store: Store,
        transport: Transport,
        clock: Clock,
        random: Random,
        on_fatal: Callable[[BaseException], None],
        registry: CollectorRegistry | None = None,
        traces: ServerTraces | None = None,
        history: History | None = None,
        membership: Mapping[str, Handler] = MEMBERSHIP_REFUSALS,
    ) -> None:
        self._history = history
        self.config = config
        self.metrics = CoordinatorMetrics(registry or CollectorRegistry())
        self._store = store = CountedReads(store, self.metrics.reads)
        self._transport = transport
        self._clock = clock
        self._random = random
        self._on_fatal = on_fatal
        self._state = _State.STARTING
        self._traces = None if traces is None else TransactionTraces(traces)
        self._commits = GroupCommit(
            store, on_failure=self.fail, observe=self.metrics.commits.observe, history=history
        )
        parking = Parking(self._commits)
        self._brokers = Brokers(
            config,
            parking,
            transport,
            clock,
            random,
            self.metrics,
            on_expelled=self._on_expelled,
            traces=self._traces,
            history=history,
        )
        changes = TransactionChanges(config.constants.txn_changes_max)
        finisher = Finisher(self._brokers, clock, self.metrics, changes, self._traces)
        self._runtime = Runtime(
            config,
            self._commits,
            parking,
            self._brokers,
            finisher,
            changes,
            clock,
            self.metrics,
            DiskReserve(store, clock, floor_bytes=config.free_space_floor_bytes),
            self.fail,
            self._traces,
            history,
        )
        self._upkeep = Upkeep(self._runtime, finisher)
        constants = config.constants
        self._timers = [
            Periodic(constants.expiry_check_interval_ms, self._upkeep.expire, self.fail),
            Periodic(constants.run_time_persist_interval_ms, self._upkeep.note_time, self.fail),
            Periodic(constants.watermark_interval_ms, self._brokers.advance_watermark, self.fail),
        ]
        self._backup = BackupSource(store, self._commits, FAMILIES)
        self.server = CoordinatorServer(self._runtime, self._backup, membership)

    @property
    def shard(self) -> Shard:
        """The transactions and the rules about them."""
        return self._runtime.shard

    @property
    def transactional_ids(self) -> TransactionalIds:
        """The transactional ids."""
        return self._runtime.transactional_ids

    @property
    def is_serving(self) -> bool:
        """Whether recovery has ended and the shutdown has not begun."""
        return self._state is _State.SERVING

    async def start(self) -> None:
        """Recover and begin to serve. A new store first asks for its incarnation, and waits for it.

        Raises:
            InvalidConfig: the store belongs to another coordinator.
            ClusterMismatch: the store belongs to another cluster.
            StoreDamaged: rows that everything depends on cannot be read.
            StoreFailed: the store cannot be written.
        Source: PIP-31, TC Startup.
        """
        try:
            recovered = await self._recover()
        except RowsUnreadable as error:
            raise cannot_recover(error) from error
        ends = await self._ask_past_ends(recovered)
        for txn_id in ends.forgotten:
            recovered.forget(txn_id)
        self._state = _State.SERVING
        self._runtime.serve(recovered)
        self._upkeep.recovered()
        if self._traces is not None:
            self._traces.restore(recovered.metadata.traceparents)
        self._brokers.start(recovered.shard, recovered.metadata, recovered.run_time)
        self._upkeep.resume()
        for txn_id, end in ends.known.items():
            self._upkeep.go_on_with(txn_id, end)
        if recovered.metadata.restored is not None:
            self._upkeep.abort_restored(recovered.metadata.restored)
        self._upkeep.expire()
        self._brokers.advance_watermark()
        for timer in self._timers:
            timer.start()

    async def _recover(self) -> Recovered:
        await self._commits.start()
        config = self.config
        provider = TransactionMetadataStoreProvider(
            self._store,
            self._commits,
            config,
            self._random,
            self._take_incarnation,
            self._history,
        )
        try:
            self._metadata = metadata = await provider.open_store(config.tcid)
        except BaseException:
            await self._commits.close()
            raise
        shard = Shard(
            config,
            tcid=config.tcid,
            incarnation=metadata.incarnation,
            next_counter=metadata.counter_bound,
            stamp_bound=metadata.stamp_bound,
        )
        transactional_ids = TransactionalIds(
            config,
            new_producer_id=self._new_producer_id,
            put=metadata.put_identity,
            delete=metadata.delete_identity,
        )
        names = NamedSequences(config, put=metadata.put_name, delete=metadata.delete_name)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async for identity in metadata.identities():
            transactional_ids.restore(identity)
        async for name in metadata.names():
            names.restore(name)
        run_time_ms = metadata.run_time_ms
        async for record in metadata.live_records():
            transaction = shard.apply(record)
            if transaction is not None:
                # The run time is persisted less often than it is used.
                run_time_ms = max(run_time_ms, transaction.start_run_time_ms)
        self.metrics.recovery_seconds.set(loop.time() - began_s)
        run_time = RunTime(
            self._clock, start_ms=run_time_ms, jump_ms_min=config.constants.clock_jump_ms_min
        )
        counts = shard.status_counts
        log.info(
            "recovered %s",
            ", ".join(f"{count} {status.name}" for status, count in counts.items()),
        )
        return Recovered(metadata, shard, transactional_ids, names, run_time)

    async def close(self) -> None:
        """Stop taking commands, answer those that were taken, and persist the run time.

        Raises:
            StoreFailed: a command that was taken may be lost; its client got no answer.
        """
        was_serving = self.is_serving
        self._stop()
        await self._backup.close()
        await self._brokers.close()
        await self._runtime.close()
        if was_serving:
            self._metadata.persist_run_time(self._runtime.run_time_ms())
        await self._commits.close()

    def abandon(self) -> None:
        """Drop everything at once, as a crash would; the store must not be used afterwards."""
        self._stop()
        self._commits.abandon()

    def fail(self, error: BaseException) -> None:
        """End the process, since only a restart can help. Repeating it is harmless."""
        if self._state is _State.STOPPED:
            return
        log.critical("the coordinator cannot go on: %r", error)
        self._stop()
        self._on_fatal(error)

    def _stop(self) -> None:
        self._state = _State.STOPPED
        for timer in self._timers:
            timer.stop()
        self._brokers.stop()
        self._runtime.stop()

    def _on_expelled(self, txn_ids: list[TxnID]) -> None:
        # The brokers are made before the upkeep.
        self._upkeep.abort_expelled(txn_ids)

    # First use of a store.

    def _new_producer_id(self) -> int:
        """Return a producer id that is unique in the cluster, and never used again."""
        return self.config.tcid << PRODUCER_NUMBER_BITS | self._metadata.new_producer_number()

    async def _take_incarnation(self, tcid: int, store_token: str) -> int:
        question = self._question(self.config.broker_addresses[0])
        return await take_incarnation(question, tcid, store_token)

    def _question(self, address: str) -> BrokerQuestion:
        return BrokerQuestion(address, self._transport, self.config, self._random)

    async def _ask_past_ends(self, recovered: Recovered) -> PastEnds:
        """Ask brokers how transactions that are OPEN from before a loss have ended (rule n)."""
        txn_ids = open_before_loss(recovered.shard)
        if not txn_ids:
            return PastEnds({}, [])
        log.info("asking brokers about %d transactions from before a loss", len(txn_ids))

        async def ask(
            address: str, request: pb.CommandDescribeEnds
        ) -> pb.CommandDescribeEndsResponse:
            answer: pb.CommandDescribeEndsResponse = await self._question(address).ask(
                request, "describe_ends_response"
            )
            return answer

        asks = [partial(ask, address) for address in self.config.broker_addresses]
        return await past_ends(
            asks,
            txn_ids,
            tcid=self.config.tcid,
            incarnation=recovered.metadata.incarnation,
            store_token=recovered.metadata.store_token,
        )
