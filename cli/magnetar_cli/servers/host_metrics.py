"""Metrics of a member's part in the ownership of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar_cluster.hosting.host import Host
from magnetar_cluster.hosting.shard_phase import ShardPhase


class HostMetric(NamedTuple):
    """A metric, and where it comes from."""

    name: str
    kind: str
    meaning: str
    value: Callable[[Host], float]


HOST_METRICS: Final = (
    HostMetric(
        "magnetar_member_shards",
        "gauge",
        "Shards that this server has, and that are open.",
        lambda host: sum(shard.phase is ShardPhase.SERVING for shard in host.shards.values()),
    ),
    HostMetric(
        "magnetar_member_shards_failing",
        "gauge",
        "Shards that this server could not open, or that ended here, and that it tries again.",
        lambda host: sum(bool(one.failures) for one in host.shards.values()),
    ),
    HostMetric(
        "magnetar_member_shards_refused",
        "gauge",
        "Shards that this server could not open, and leaves to others for some time.",
        lambda host: len(host.refused),
    ),
    HostMetric(
        "magnetar_member_shards_unowned",
        "gauge",
        "Shards of this server's kind that no server has, as far as this one knows.",
        lambda host: host.unowned,
    ),
    HostMetric(
        "magnetar_member_may_speak",
        "gauge",
        "Whether this server's lease is renewed: without a lease it answers no client.",
        lambda host: host.may_speak(),
    ),
    HostMetric(
        "magnetar_member_view_age_seconds",
        "gauge",
        "Time since etcd last told about owners; 0 while it is watched.",
        lambda host: host.view_age_ms() / 1_000,
    ),
    HostMetric(
        "magnetar_member_openings",
        "counter",
        "Shards that were opened here.",
        lambda host: host.counts.openings,
    ),
    HostMetric(
        "magnetar_member_openings_failed",
        "counter",
        "Attempts to open a shard that failed; the log says why.",
        lambda host: host.counts.openings_failed,
    ),
    HostMetric(
        "magnetar_member_handovers",
        "counter",
        "Shards that were closed in order, for another server.",
        lambda host: host.counts.handovers,
    ),
    HostMetric(
        "magnetar_member_shards_failed",
        "counter",
        "Open shards that ended by themselves: their stores failed, or had another owner.",
        lambda host: host.counts.failed,
    ),
    HostMetric(
        "magnetar_member_shards_lost",
        "counter",
        "Open shards that ended at once, since another server might have had them.",
        lambda host: host.counts.lost,
    ),
    HostMetric(
        "magnetar_member_lease_renewals_failed",
        "counter",
        "Renewals of the lease that etcd did not answer, or refused.",
        lambda host: host.renewals_failed,
    ),
    HostMetric(
        "magnetar_member_leases_lost",
        "counter",
        "Leases that ended while this server ran: it was silent for too long, or etcd was.",
        lambda host: host.leases_lost,
    ),
)


class HostMetrics(Collector):
    """Collects the metrics of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterable[Metric]:
        """Return all of them, as they are now."""
        for metric in HOST_METRICS:
            value = float(metric.value(self._host))
            if metric.kind == "counter":
                yield CounterMetricFamily(metric.name, metric.meaning, value=value)
            else:
                yield GaugeMetricFamily(metric.name, metric.meaning, value=value)
