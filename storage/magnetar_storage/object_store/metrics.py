"""Prometheus metrics of a store in an object store: its requests are what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric

_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

# Counters of SlateDB, and what is written with each.
_WRITTEN: Final = {
    "slatedb.wal.wal_flush_bytes": "log",
    "slatedb.db.l0_flush_bytes": "tables",
    "slatedb.compactor.bytes_compacted": "compaction",
}


class Recorder(Protocol):
    """Recorder into which SlateDB counts; the binding's `DefaultMetricsRecorder`."""

    def snapshot(self) -> list[Any]:
        """Return every metric as it is now."""


class ObjectStoreMetrics:
    """Metrics of a store's requests. Counters are brought up to date when they are read.

    Args:
        registry: where the metrics are registered.
        prefix: beginning of the metrics' names, such as "magnetar_broker".
    """

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self._recorder: Recorder | None = None
        self._seen: dict[tuple[str, ...], float] = {}
        # A registry collects in the order in which collectors were registered.
        registry.register(self)
        self._requests = Counter(
            f"{prefix}_object_store_requests",
            "Requests to the object store, repeated ones too. Providers charge for puts and lists,"
            " and less for gets.",
            ["operation", "component"],
            registry=registry,
        )
        self._errors = Counter(
            f"{prefix}_object_store_errors",
            "Requests that failed. Some are as expected: a get that looks for a newer object, a put"
            " that another one came before.",
            ["operation", "component"],
            registry=registry,
        )
        self._written = Counter(
            f"{prefix}_object_store_written_bytes",
            "Bytes written to the object store: by group commits to the log, then to tables, and"
            " again by compactions.",
            ["part"],
            registry=registry,
        )
        self._cache_reads = Counter(
            f"{prefix}_object_store_cache_reads",
            "Blocks of tables that were looked for in memory. Many misses: the cache is small.",
            ["result"],
            registry=registry,
        )
        self._log_seconds = Histogram(
            f"{prefix}_object_store_log_put_seconds",
            "One put of a group to the log of the store. Rising: the object store is slow or far.",
            registry=registry,
            buckets=_SECONDS,
        )

    def observe(self, recorder: Recorder) -> None:
        """Take the counters from this recorder from now on."""
        self._recorder = recorder

    def log_was_put(self, seconds: float) -> None:
        """Count the time of a put to the log."""
        self._log_seconds.observe(seconds)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry asks the counters themselves."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Bring the counters up to date, just before the registry reads them."""
        if self._recorder is not None:
            for metric in self._recorder.snapshot():
                self._take(metric)
        return ()

    def _take(self, metric: Any) -> None:
        if not metric.value.is_counter():
            return
        labels = {label.key: label.value for label in metric.labels}
        value = float(metric.value[0])
        if metric.name == "slatedb.object_store.request_count":
            counter = self._requests.labels(labels["op"], labels["component"])
        elif metric.name == "slatedb.object_store.error_count":
            counter = self._errors.labels(labels["op"], labels["component"])
        elif metric.name == "slatedb.db_cache.access_count":
            counter = self._cache_reads.labels(labels["result"])
        elif metric.name in _WRITTEN:
            counter = self._written.labels(_WRITTEN[metric.name])
        else:
            return
        key = (metric.name, *(f"{name}={labels[name]}" for name in sorted(labels)))
        counter.inc(value - self._seen.get(key, 0.0))
        self._seen[key] = value
