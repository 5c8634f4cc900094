"""docs/metrics.md, from the metrics that the servers register."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from magnetar_broker.metrics import BrokerMetrics
from magnetar_cli.servers.host_metrics import HOST_METRICS
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_core.config import ListenConfig
from magnetar_core.recording.metrics import HistoryMetrics
from magnetar_core.security.certificate_metrics import tell_expiry
from magnetar_core.server.connection_metrics import tell_connections
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.traces.metrics import TracesMetrics
from magnetar_kafka.metrics import KafkaMetrics
from magnetar_storage.object_store.metrics import ObjectStoreMetrics

HEAD = """\
# Metrics

Each server has a Prometheus endpoint: `--metrics-port`, or the address that `magnetar standalone` prints. Gauges of the
broker are set every `retention_check_interval_ms`, those of the coordinator once a second.
Metrics with `object_store` in their names are there with `--store` only.
This page is generated: `make docs`.
"""

MEMBERS = """
## Servers whose shards change their owner

With `--etcd`, all metrics above have the label `shard`, and these come on top.

| metric | kind | meaning |
|---|---|---|
"""

ALERTS = """
## What to watch

`deploy/prometheus/alerts.yaml` has rules for most of it, `deploy/grafana/` a dashboard.

| when | it means |
|---|---|
| `magnetar_coordinator_incomplete_transactions` > 0 | a participant lost what it had confirmed; an administrator decides |
| `magnetar_broker_oldest_open_txn_seconds` above the longest timeout | its coordinator is away, or does not know it |
| `magnetar_coordinator_oldest_open_seconds` rising | clients die in transactions; what they acknowledged waits for expiry |
| `magnetar_coordinator_oldest_finishing_seconds` rising | a broker cannot be reached, or refuses |
| `rate(magnetar_coordinator_ends_repeated_total[5m])` > 0 | brokers answer late, or links break |
| `magnetar_broker_directory_current` 0 for long | clients cannot create or delete topics at this broker; it serves those that it knows, unless its log says that its store was refused |
| `magnetar_broker_disk_free_bytes` near the reserve | sends will soon be refused with DiskFull |
| `magnetar_broker_group_commit_seconds` rising | the disk is slow: everything waits for it |
| `magnetar_member_may_speak` 0 | etcd does not answer, or the server is too slow to renew its lease: its shards do not answer clients |
| `magnetar_member_shards_failing` > 0 | a shard cannot be opened; the log says why |
| `magnetar_member_shards_unowned` > 0 | some shards have no owner: their topics and transactions wait |
| `rate(magnetar_broker_refusals_total[5m])` by `error` | what clients do wrong |
"""


def page() -> str:
    parts = [HEAD]
    for title, registry in registries():
        parts.append(f"\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n")
        parts += [row(metric) for metric in metrics_of(registry)]
    parts.append(MEMBERS)
    parts += [
        f"| `{metric.name}{'_total' if metric.kind == 'counter' else ''}` | {metric.kind} "
        f"| {metric.meaning} |\n"
        for metric in sorted(HOST_METRICS)
    ]
    return "".join([*parts, ALERTS])


def registries() -> Iterable[tuple[str, CollectorRegistry]]:
    broker, coordinator = CollectorRegistry(), CollectorRegistry()
    BrokerMetrics(broker)
    CoordinatorMetrics(coordinator)
    # Its file is read when the metric is.
    tell_expiry(broker, "tls.pem")
    tell_expiry(coordinator, "tls.pem")
    tell_connections(broker, GrpcServer("Broker", ListenConfig()))
    tell_connections(coordinator, GrpcServer("TransactionCoordinator", ListenConfig()))
    TracesMetrics(broker)
    TracesMetrics(coordinator)
    HistoryMetrics(broker)
    HistoryMetrics(coordinator)
    KafkaMetrics(broker)
    ObjectStoreMetrics("magnetar_broker", broker)
    ObjectStoreMetrics("magnetar_coordinator", coordinator)
    return (("Broker", broker), ("Coordinator", coordinator))


def metrics_of(registry: CollectorRegistry) -> list[MetricWrapperBase]:
    found = [name for name in registry._collector_to_names if isinstance(name, MetricWrapperBase)]
    return sorted(found, key=lambda metric: metric._name)


def row(metric: MetricWrapperBase) -> str:
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    name = f"{metric._name}_total" if isinstance(metric, Counter) else metric._name
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"| `{name}` | {kinds[type(metric)]} | {labels} | {metric._documentation} |\n"
