"""Metrics of a server's traces."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

# Why spans do not reach the collector.
QUEUE_FULL = "queue full"
NOT_TAKEN = "not taken"
STOPPED = "stopped"


class TracesMetrics:
    """Counts of the spans that a server has made, sent and dropped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.exported = Counter(
            "magnetar_traces_exported_spans",
            "Spans that the collector has taken. Only with --traces-endpoint.",
            registry=registry,
        )
        self.dropped = Counter(
            "magnetar_traces_dropped_spans",
            "Spans that the collector never got, by the reason: the queue was full, the collector"
            " did not take them, or the server stopped. Only with --traces-endpoint.",
            ["reason"],
            registry=registry,
        )
        for reason in (QUEUE_FULL, NOT_TAKEN, STOPPED):
            self.dropped.labels(reason)
