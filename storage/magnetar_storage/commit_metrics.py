"""Prometheus metrics of a group commit."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from magnetar_core.process.loop_histogram import LoopHistogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
_OPERATIONS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)


class CommitMetrics:
    """Metrics of a store's group commit.

    Args:
        registry: where the metrics are registered.
        prefix: beginning of the metrics' names, such as "magnetar_broker".
    """

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self._seconds = LoopHistogram(
            f"{prefix}_group_commit_seconds",
            "Write and sync of one group. Rising: the disk is slow or full of work.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._operations = LoopHistogram(
            f"{prefix}_group_commit_operations",
            "Rows written or deleted in one group: how much shares one sync.",
            registry=registry,
            buckets=_OPERATIONS,
        )
        self._bytes = Counter(
            f"{prefix}_group_commit_bytes", "Bytes written by groups.", registry=registry
        )

    def observe(self, operations: int, byte_count: int, seconds: float) -> None:
        """Count a group that has become durable."""
        self._seconds.observe(seconds)
        self._operations.observe(operations)
        self._bytes.inc(byte_count)
