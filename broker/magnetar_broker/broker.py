"""Broker: what its process owns, and how it starts, runs and stops.

The modules below (partition, subscription, ...) make the decisions; here are the store, the group
commit, the timers and the tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from magnetar_broker import keys
from magnetar_broker.ages import Ages, Jump
from magnetar_broker.budgets.memory_budget import MemoryBudget
from magnetar_broker.budgets.open_bytes import OpenBytes
from magnetar_broker.commands.service import BrokerServer
from magnetar_broker.commands.views import overview
from magnetar_broker.config import BrokerConfig
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.coordinators.incarnations import Incarnations
from magnetar_broker.coordinators.orphan_resolver import OrphanResolver
from magnetar_broker.environment import Environment
from magnetar_broker.groups.group_offsets import GroupOffsets
from magnetar_broker.groups.groups import Groups
from magnetar_broker.local_access import LocalAccess
from magnetar_broker.metrics import BrokerMetrics
from magnetar_broker.recovery import Recovery
from magnetar_broker.topic_directory.follower import TopicDirectoryFollower
from magnetar_broker.topic_directory.keeper import TopicDirectoryKeeper
from magnetar_broker.topics.accepted_losses import go_on_without
from magnetar_broker.topics.found import note_found
from magnetar_broker.topics.retention import trim_partition
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions.issued import Issued
from magnetar_broker.transactions.orphan_candidates import OrphanCandidates
from magnetar_broker.transactions.recent_messages import RecentMessages
from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.clock import Clock
from magnetar_core.errors import DataLoss
from magnetar_core.history.history import History
from magnetar_core.membership.address_book import AddressBook, FixedAddresses
from magnetar_core.process.run_time import RunTime
from magnetar_core.server.commands import Handler
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import record_pb2 as records
from magnetar_storage import store_identity
from magnetar_storage.backup_source import BackupSource
from magnetar_storage.disk_reserve import DiskReserve
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.late_sync import LateSyncCommit
from magnetar_storage.read_metrics import CountedReads
from magnetar_storage.store import (
    RowsUnreadable,
    Store,
    StoreFailed,
    WriteBatch,
    cannot_recover,
)

log = logging.getLogger(__name__)

# A smaller difference between the clocks counts as drift, or as a correction.
CLOCK_JUMP_MS_MIN = 1_000
# How much of its producers' idle time a killed broker forgets.
RUN_TIME_PERSIST_INTERVAL_MS = 60_000


class Broker:
    """A broker on a store.

    Args:
        on_fatal: called once when the store failed: no answer may leave from then on (rule b). The
            process ends, or the broker is abandoned.
        addresses: where the cluster's servers are now; None: where the list of members has them.
        memory: shared with the other brokers of the process; None: its own, which is not watched.
        history: notes the events of the protocol; None: there is none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        transport: Transport,
        clock: Clock,
        random: Random,
        on_fatal: Callable[[BaseException], None],
        registry: CollectorRegistry | None = None,
        addresses: AddressBook | None = None,
        memory: MemoryBudget | None = None,
        history: History | None = None,
        membership: Mapping[str, Handler] = MEMBERSHIP_REFUSALS,
    ) -> None:
        self._history = history
        self._on_fatal = on_fatal
        self._is_fatal = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._retention_timer: asyncio.TimerHandle | None = None
        self._memory_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._noted_run_time_ms = 0
        self._noted_jumps: tuple[Jump, ...] = ()
        self._memory_budget = memory or MemoryBudget(
            memory_bytes=config.memory_bytes, tails_bytes_max=config.tails_bytes_max
        )
        self.metrics = BrokerMetrics(registry)
        self._store = store = CountedReads(store, self.metrics.reads)
        commits = self._commits_of(config, store)
        commits.before_seal(self._write_deferred_rows)
        watermarks = Watermarks(history)
        issued = Issued(
            watermarks,
            clock,
            [one.tcid for one in config.coordinators],
            lambda tcid: self.topic_directory.may_have_incarnation(tcid),
        )
        self.environment = Environment(
            config=config,
            addresses=addresses or FixedAddresses(),
            store=store,
            commits=commits,
            disk_reserve=DiskReserve(store, clock, floor_bytes=config.free_space_floor_bytes),
            clock=clock,
            watermarks=watermarks,
            issued=issued,
            orphan_candidates=OrphanCandidates(),
            metrics=self.metrics,
            spawn=self._spawn,
            deferred_rows={},
            open_bytes=OpenBytes(
                total_max=config.open_txn_bytes_max,
                session_max=config.session_open_txn_bytes_max,
            ),
            tails=self._memory_budget.tails,
            recent_messages=RecentMessages(self._memory_budget.tails),
            run_time=RunTime(clock, start_ms=0, jump_ms_min=CLOCK_JUMP_MS_MIN),
            ages=Ages(clock, jump_ms_min=CLOCK_JUMP_MS_MIN),
            history=history,
            membership=membership,
        )
        self.topics = Topics(self.environment)
        self.incarnations = Incarnations(self.environment)
        self.coordinators = CoordinatorSessions()
        self._orphan_resolver = OrphanResolver(self.environment)
        self.groups = Groups(self.environment, self.topics, self.coordinators)
        self.topic_directory: TopicDirectoryKeeper | TopicDirectoryFollower
        if config.shard:
            self.topic_directory = TopicDirectoryFollower(
                self.environment, self.topics, self.groups, transport, random
            )
        else:
            self.topic_directory = TopicDirectoryKeeper(
                self.environment,
                self.topics,
                self.groups,
                self.incarnations,
                self.coordinators,
                transport,
                random,
            )
        self._backup = BackupSource(store, commits, keys.FAMILIES)
        group_offsets = GroupOffsets(self.topics)
        self.server = BrokerServer(
            self.environment,
            self.topics,
            self.groups,
            group_offsets,
            self.coordinators,
            self._orphan_resolver,
            self.topic_directory,
            self.topic_directory.guard,
            self.topic_directory.admit_store,
            random,
            self._backup,
        )
        self.local_access = LocalAccess(
            self.environment, self.topics, self.groups, group_offsets, self.server
        )

    def _commits_of(self, config: BrokerConfig, store: Store) -> GroupCommit:
        observe = self.metrics.commits.observe
        if not config.late_syncs:
            return GroupCommit(store, on_failure=self._fail, observe=observe, history=self._history)
        return LateSyncCommit(
            store,
            on_failure=self._fail,
            observe=observe,
            history=self._history,
            sync_interval_ms=config.sync_interval_ms,
        )

    async def start(self) -> None:
        """Recover, then be ready to answer.

        Raises:
            InvalidConfig: the store belongs to another server, or to a later version.
            ClusterMismatch: the store belongs to another cluster.
            StoreDamaged: rows that everything depends on cannot be read.
            StoreFailed: the store cannot be written.
        """
        try:
            await self._recover()
        except RowsUnreadable as error:
            raise cannot_recover(error) from error
        self._show()
        await self.environment.commits.start()
        self.groups.start()
        self.topic_directory.start()
        self._schedule_retention()
        self._watch_memory()

    async def _recover(self) -> None:
        config = self.environment.config
        row = await store_identity.check_store_identity(
            self._store,
            keys.META,
            kind="broker",
            member=config.name,
            membership_version=config.membership_version,
            cluster_hash=config.cluster_hash,
            brokers=[broker.name for broker in config.brokers],
        )
        if row is not None:
            self.environment.commits.batch.put(keys.META, store_identity.KEY, row)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        environment = self.environment
        recovery = Recovery(
            self._store,
            self.topics,
            self.groups,
            environment.watermarks,
            environment.open_bytes,
            environment.run_time,
            environment.ages,
        )
        losses = await store_identity.accepted_losses(self._store, keys.META)
        all_losses = await store_identity.all_losses(self._store, keys.META)
        self.topics.ledger_id = await store_identity.ledger_of(self._store, keys.META)
        self.incarnations.go_on_after(losses, wall_ms=environment.clock.wall_ms())
        await recovery.run()
        await go_on_without(environment, self.topics, all_losses)
        await self.topic_directory.recover(losses)
        if self._history is not None:
            note_found(self._history, self.topics, environment.watermarks, losses=all_losses)
        self.metrics.recovery_seconds.set(loop.time() - began_s)
        if config.late_syncs:
            log.warning(
                "durability is os: if this machine goes down, it takes the plain messages and plain"
                " acks with it that were confirmed in the last %d ms; transactions are synced",
                config.sync_interval_ms,
            )

    async def close(self) -> None:
        """Make everything durable and stop. The store stays open."""
        self._closing = True
        self._stop_timers()
        try:
            await self._backup.close()
            await self.topic_directory.close()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))
            await self.environment.commits.close()
        finally:
            self._forget_tails()

    def abandon(self) -> None:
        """Drop everything at once, as a crash would; the store must not be used afterwards."""
        self._closing = self._is_fatal = True
        self._stop_timers()
        self.topic_directory.stop()
        for task in list(self._tasks):
            task.cancel()
        self.environment.commits.abandon()
        self._forget_tails()

    def check(self) -> None:
        """Check the invariants of every part; for tests."""
        self.environment.tails.check()
        self.environment.recent_messages.check(
            writer
            for partition in self.topics.partitions()
            for transaction in partition.index.open.values()
            for writer in transaction.writers.values()
        )
        self.topics.check()
        for group in self.groups.all():
            group.check()
        for partition in self.topics.partitions():
            partition.log.check()
            partition.index.check()
            partition.order.check()
            for subscription in partition.subscriptions:
                subscription.index.check()
                subscription.cursor.check()
                subscription.dispatcher.check()

    def _write_deferred_rows(self, batch: WriteBatch) -> None:
        owners = list(self.environment.deferred_rows)
        self.environment.deferred_rows.clear()
        for owner in owners:
            owner.write_deferred_rows(batch)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        if isinstance(error, StoreFailed):
            self._fail(error)
            return
        task.get_loop().call_exception_handler(
            {"message": "a broker task failed", "exception": error, "task": task}
        )

    def _fail(self, error: BaseException) -> None:
        """End the process: the store failed.

        Tasks that read it may notice after the group commit.
        """
        if not self._is_fatal:
            self._is_fatal = self._closing = True
            # Others in this process may go on, and timers with them.
            self._stop_timers()
            self._on_fatal(error)

    def _stop_timers(self) -> None:
        self.groups.stop()
        for timer in (self._retention_timer, self._memory_timer):
            if timer is not None:
                timer.cancel()

    def _watch_memory(self) -> None:
        if self._closing or not self._memory_budget.is_watched:
            return
        loop = asyncio.get_running_loop()
        delay_s = self._memory_budget.look(loop.time())
        self.metrics.resident_bytes.set(self._memory_budget.resident_bytes)
        self._memory_timer = loop.call_later(delay_s, self._watch_memory)

    def _forget_tails(self) -> None:
        """Leave the memory of the process to its other brokers."""
        for partition in self.topics.partitions():
            partition.log.forget_tail()

    def _schedule_retention(self) -> None:
        if not self._closing:
            interval_ms = self.environment.config.retention_check_interval_ms
            self._retention_timer = asyncio.get_running_loop().call_later(
                interval_ms / 1000, lambda: self._spawn(self._retain())
            )

    def _show(self) -> None:
        config = self.environment.config
        shown = overview(
            self.topics,
            self.groups,
            self.environment.ages.of,
            late_ms=config.late_txn_ms,
            partitions_shown_max=config.constants.open_txn_gauges_max,
            lags_shown_max=config.constants.group_lag_gauges_max,
        )
        self.metrics.directory_current.set(self.topic_directory.is_current)
        self.metrics.tails_bytes.set(self.environment.tails.byte_count)
        self.metrics.unsynced_seconds.set(self.environment.commits.seconds_unsynced())
        self.metrics.show(shown, free_bytes=self.environment.disk_reserve.look())

    def _note_run_time(self) -> int:
        """Persist the clocks' jumps, and each minute the run time that measures producers' ages."""
        environment = self.environment
        jump_ms = environment.run_time.wall_jump_ms()
        if jump_ms:
            log.warning(
                "the wall clock jumped by %d ms; the jump ages no producer and no message", jump_ms
            )
        environment.ages.look()
        if environment.ages.jumps != self._noted_jumps:
            self._noted_jumps = environment.ages.jumps
            row = records.ClockJumpsRow(
                jumps=[
                    records.ClockJumpsRow.Jump(before_ms=one.before_ms, jump_ms=one.jump_ms)
                    for one in self._noted_jumps
                ]
            )
            environment.commits.batch.put(keys.META, keys.META_CLOCK_JUMPS, row.SerializeToString())
        run_time_ms = environment.run_time.now_ms()
        is_due = run_time_ms - self._noted_run_time_ms >= RUN_TIME_PERSIST_INTERVAL_MS
        if is_due and any(len(one.producers) for one in self.topics.partitions()):
            self._noted_run_time_ms = run_time_ms
            environment.commits.batch.put(keys.META, keys.META_RUN_TIME, keys.u64(run_time_ms))
        return run_time_ms

    async def _retain(self) -> None:
        self._show()
        run_time_ms = self._note_run_time()
        for topic in self.topics.all():
            for partition in topic.partitions:
                # Unreadable entries stay, and all entries after them, until an administrator skips
                # them.
                with suppress(RowsUnreadable, DataLoss):
                    await trim_partition(self.environment, topic, partition)
                partition.forget_idle_producers(
                    run_time_ms - self.environment.config.producer_idle_ms_max
                )
        self._schedule_retention()
