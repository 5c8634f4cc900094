"""Metrics of a coordinator. Modules that decide count nothing: their callers do."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.cuts.hybrid_clock import time_ms_of
from magnetar_core.process.build_metrics import tell_version
from magnetar_core.process.loop_histogram import LoopHistogram
from magnetar_storage.commit_metrics import CommitMetrics
from magnetar_storage.read_metrics import ReadMetrics

_FINISHING_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)


class CoordinatorMetrics:
    """Prometheus metrics, in the registry of the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        tell_version(registry)
        self.commits = CommitMetrics("magnetar_coordinator", registry)
        self.reads = ReadMetrics("magnetar_coordinator", registry)
        self.refusals = Counter(
            "magnetar_coordinator_refusals",
            "Commands refused, by the error's name.",
            ["error"],
            registry=registry,
        )
        self.recovery_seconds = Gauge(
            "magnetar_coordinator_recovery_seconds",
            "What reading the store took at the start, its own log replayed before.",
            registry=registry,
        )
        live = Gauge(
            "magnetar_coordinator_transactions",
            "Live transactions.",
            ["status"],
            registry=registry,
        )
        self._live = {
            status: live.labels(status.name.lower())
            for status in (TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.ABORTING)
        }
        self._oldest_open = Gauge(
            "magnetar_coordinator_oldest_open_seconds",
            "Since the oldest open transaction began, in the coordinator's run time (KIP-939,"
            " ActiveTransactionOpenTimeMaxMs).",
            registry=registry,
        )
        self.opened = Counter(
            "magnetar_coordinator_transactions_opened",
            "Transactions opened.",
            registry=registry,
        )
        ended = Counter(
            "magnetar_coordinator_transactions_ended",
            "Transactions that every participant has ended.",
            ["status"],
            registry=registry,
        )
        self.ended = {
            status: ended.labels(status.name.lower())
            for status in (TxnStatus.COMMITTED, TxnStatus.ABORTED)
        }
        self.expired = Counter(
            "magnetar_coordinator_transactions_expired",
            "Transactions aborted because their time was up.",
            registry=registry,
        )
        self.expelled = Counter(
            "magnetar_coordinator_transactions_expelled",
            "Transactions aborted because a group had expelled a member that took part.",
            registry=registry,
        )
        self.finishing_seconds = LoopHistogram(
            "magnetar_coordinator_finishing_seconds",
            "From the durable decision until every participant has answered.",
            buckets=_FINISHING_SECONDS,
            registry=registry,
        )
        self._oldest_finishing = Gauge(
            "magnetar_coordinator_oldest_finishing_seconds",
            "Since the oldest decision that not every participant has answered; of those from"
            " before a restart, since that. Rising: a broker is away, or refuses.",
            registry=registry,
        )
        self.incomplete = Gauge(
            "magnetar_coordinator_incomplete_transactions",
            "Transactions that a participant refuses to end: an administrator is needed.",
            registry=registry,
        )
        self.repeated = Counter(
            "magnetar_coordinator_ends_repeated",
            "Ends that were sent to a participant again.",
            registry=registry,
        )
        self.clock_jumps = Counter(
            "magnetar_coordinator_clock_jumps",
            "Jumps of the wall clock against the monotonic clock.",
            registry=registry,
        )
        self._stamps_ahead = Gauge(
            "magnetar_coordinator_stamps_ahead_seconds",
            "How far the latest stamp of a commit lies ahead of the wall clock. A second is usual"
            " after a start. More: this clock was set back, or another server's is ahead.",
            registry=registry,
        )
        self._cuts_waiting = Gauge(
            "magnetar_coordinator_cuts_waiting",
            "Cuts that wait here until commits have ended everywhere.",
            registry=registry,
        )
        self.outcomes = Gauge(
            "magnetar_coordinator_outcomes",
            "Outcomes of ended transactions that are kept.",
            registry=registry,
        )

        self.transactional_ids = Gauge(
            "magnetar_coordinator_transactional_ids",
            "Transactional ids that are known: used lately, or with something open.",
            registry=registry,
        )

    def show(
        self,
        shard: Shard,
        *,
        time_ms: int,
        run_time_ms: int,
        outcome_count: int,
        identity_count: int,
        oldest_finishing_ms: float,
        cuts_waiting: int,
    ) -> None:
        """Set the gauges, which are refreshed from time to time."""
        ahead_ms = max(0, time_ms_of(shard.clock.last) - time_ms) if shard.clock.last else 0
        self._stamps_ahead.set(ahead_ms / 1_000)
        self._cuts_waiting.set(cuts_waiting)
        self._oldest_finishing.set(oldest_finishing_ms / 1_000)
        for status, gauge in self._live.items():
            gauge.set(shard.status_counts[status])
        oldest = shard.oldest_open()
        age_ms = 0 if oldest is None else max(0, run_time_ms - oldest.start_run_time_ms)
        self._oldest_open.set(age_ms / 1_000)
        self.outcomes.set(outcome_count)
        self.transactional_ids.set(identity_count)
