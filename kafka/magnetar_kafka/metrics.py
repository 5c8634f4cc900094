"""Metrics of the listener for Kafka's clients."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class KafkaMetrics:
    """Requests by kind and error, and connections."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "magnetar_kafka_requests",
            "Answered requests of Kafka's clients. error: the first one in the answer, or NONE.",
            ["api", "error"],
            registry=registry,
        )
        self.closed = Counter(
            "magnetar_kafka_connections_closed",
            "Connections of Kafka's clients that the server closed. reason: malformed (not a"
            " request of a known version), too_many (also of a principal), slow"
            " (kafka_request_timeout_ms), tls (no handshake), unauthenticated (it did not show who"
            " it is, or what it showed no longer counts), refused (an error that cannot be"
            " answered), moved (a shard has another owner), failed (a bug).",
            ["reason"],
            registry=registry,
        )
        self.connections = Gauge(
            "magnetar_kafka_connections",
            "Open connections of Kafka's clients.",
            registry=registry,
        )
        self.parked_fetches = Gauge(
            "magnetar_kafka_parked_fetches",
            "Fetches of Kafka's clients that wait for messages.",
            registry=registry,
        )
