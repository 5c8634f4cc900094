"""Metrics of a server's history."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class HistoryMetrics:
    """Lines of a server's history, and whether it is being written."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lines = Counter(
            "magnetar_history_lines",
            "Lines written to the history of the protocol. Only with --history-dir.",
            registry=registry,
        )
        self.stopped = Gauge(
            "magnetar_history_stopped",
            "1 if the history has ended before the server: its file cannot be written, or"
            " history_bytes_max is reached. The log says which. Only with --history-dir.",
            registry=registry,
        )
