"""Sends the spans of a server to a collector, by OTLP over HTTP.

Commands do not wait for it: spans wait in a queue of limited size, and a thread posts them. When
the collector is away or slow, spans are dropped and counted, and commands go on. Only a process
that makes traces imports this module.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from prometheus_client import CollectorRegistry

from magnetar_core.traces.config import TracesConfig
from magnetar_core.traces.metrics import NOT_TAKEN, QUEUE_FULL, STOPPED, TracesMetrics
from magnetar_core.traces.otel import OtelServerTraces, tracer_of
from magnetar_core.version import VERSION

log = logging.getLogger(__name__)

# Spans that may wait for the collector, about 2 KiB each; more are dropped, and counted.
QUEUE_SPANS = 4_096
# How long a stopping server waits until the collector has the last spans.
FLUSH_MS = 2_000
# OpenTelemetry's default.
_BATCH_SPANS_MAX = 512


class ExportedTraces:
    """The traces of a server process.

    Args:
        kind: "broker" or "coordinator".
        name: of the server.
        exporter: where spans go; None: to the collector that the settings name.
        queue_spans: how many may wait for the collector.
        flush_ms: how long `close` waits for the collector.
    Attributes:
        server: makes the spans.
    """

    def __init__(
        self,
        config: TracesConfig,
        kind: str,
        name: str,
        registry: CollectorRegistry,
        exporter: Any = None,
        queue_spans: int = QUEUE_SPANS,
        flush_ms: int = FLUSH_MS,
    ) -> None:
        self._flush_s = flush_ms / 1_000
        self._metrics = TracesMetrics(registry)
        self._queue = _BoundedQueue(
            exporter or OTLPSpanExporter(endpoint=config.url),
            queue_spans,
            self._metrics,
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.traces_sample_ratio)),
            resource=_resource(kind, name),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self._queue)
        self.server = OtelServerTraces(tracer_of(self._provider))
        log.info("spans go to %s", config.url)

    def close(self) -> None:
        """Send waiting spans, for a limited time. It blocks: call it in a thread.

        What a collector that hangs has not taken by then is dropped, and so is what comes later.
        """
        flushing = threading.Thread(
            target=self._provider.shutdown, name="flush of traces", daemon=True
        )
        flushing.start()
        flushing.join(self._flush_s)
        left = self._queue.abandon()
        if left:
            log.warning("%d spans were dropped: the collector has not taken them in time", left)


def _resource(kind: str, name: str) -> Any:
    """Return the attributes of the process in spans; the environment has the last word."""
    ours = {
        "service.name": f"magnetar-{kind}",
        "service.instance.id": name,
        "service.version": VERSION,
    }
    return Resource.create(ours).merge(OTELResourceDetector().detect())


class _BoundedQueue(SpanProcessor):  # type: ignore[misc]
    """Queue in front of a collector: it drops and counts what does not fit.

    OpenTelemetry's own queue drops spans, too, but does not say how many.
    """

    def __init__(self, exporter: Any, spans_max: int, metrics: TracesMetrics) -> None:
        self._spans_max = spans_max
        self._metrics = metrics
        # Spans are made on one thread and sent on another; the two numbers only rise.
        self._taken_count = 0
        self._sent_count = 0
        self._abandoned = False
        self._lock = threading.Lock()
        self._processor = BatchSpanProcessor(
            _CountedExporter(exporter, self._sent),
            max_queue_size=spans_max,
            max_export_batch_size=min(_BATCH_SPANS_MAX, spans_max),
        )

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Nothing waits before a span has ended."""

    def on_end(self, span: Any) -> None:
        """Queue a span, or drop it."""
        with self._lock:
            if self._abandoned:
                self._metrics.dropped.labels(STOPPED).inc()
                return
            if self._taken_count - self._sent_count >= self._spans_max:
                self._metrics.dropped.labels(QUEUE_FULL).inc()
                return
            self._taken_count += 1
        self._processor.on_end(span)

    def shutdown(self) -> None:
        """Send queued spans; this takes as long as the collector does."""
        self._processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send queued spans."""
        flushed: bool = self._processor.force_flush(timeout_millis)
        return flushed

    def abandon(self) -> int:
        """Count the spans that are not sent as dropped, once; return their number."""
        with self._lock:
            left = 0 if self._abandoned else self._taken_count - self._sent_count
            self._abandoned = True
        self._metrics.dropped.labels(STOPPED).inc(left)
        return left

    def _sent(self, count: int, is_taken: bool) -> None:
        with self._lock:
            if self._abandoned:
                return
            self._sent_count += count
        if is_taken:
            self._metrics.exported.inc(count)
        else:
            self._metrics.dropped.labels(NOT_TAKEN).inc(count)


class _CountedExporter(SpanExporter):  # type: ignore[misc]
    """Exporter that tells how many spans were sent, and whether the collector took them."""

    def __init__(self, exporter: Any, on_sent: Any) -> None:
        self._exporter = exporter
        self._on_sent = on_sent

    def export(self, spans: Sequence[Any]) -> Any:
        """Post a batch."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._on_sent(len(spans), result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """End the exports under way."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Everything is posted at once."""
        return True
