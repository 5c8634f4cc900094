"""A broker's metrics. They rise when replies leave, not before (rule a)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class BrokerMetrics:
    """Prometheus metrics on a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        self.registry = registry
        self.messages_in = Counter(
            "magnetar_broker_messages_in", "Messages accepted", ["kind"], registry=registry
        )
        self.bytes_in = Counter(
            "magnetar_broker_bytes_in", "Batch bytes accepted", registry=registry
        )
        self.messages_out = Counter(
            "magnetar_broker_messages_out", "Messages delivered", registry=registry
        )
        self.acks = Counter("magnetar_broker_acks", "Ack commands", ["kind"], registry=registry)
        self.txn_ends = Counter(
            "magnetar_broker_txn_ends",
            "Transactions ended at a participant",
            ["outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "magnetar_broker_refusals", "Commands refused", ["error"], registry=registry
        )
        self.open_txns = Gauge(
            "magnetar_broker_open_txns",
            "Transactions open at participants of this broker",
            registry=registry,
        )
        self.group_seconds = Histogram(
            "magnetar_broker_group_commit_seconds",
            "Write and sync of one group",
            registry=registry,
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
        )
        self.group_bytes = Counter(
            "magnetar_broker_group_commit_bytes", "Bytes written by groups", registry=registry
        )
        self._plain_in = self.messages_in.labels("plain")
        self._transactional_in = self.messages_in.labels("transactional")

    def observe_group(self, operations: int, byte_count: int, seconds: float) -> None:
        self.group_seconds.observe(seconds)
        self.group_bytes.inc(byte_count)

    def sent(self, messages: int, byte_count: int, *, transactional: bool) -> None:
        (self._transactional_in if transactional else self._plain_in).inc(messages)
        self.bytes_in.inc(byte_count)
