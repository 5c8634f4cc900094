"""Makes spans of OpenTelemetry, with a provider that the caller chooses.

It needs OpenTelemetry's API, and not its SDK. Only a process that makes traces imports this module.
"""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from magnetar_core.errors import code_name
from magnetar_core.traces.descriptions import (
    ERROR_TYPE,
    ROOTS,
    Attributes,
    Description,
    describe,
    shortened,
)
from magnetar_core.traces.traceparent import TraceParent, parse
from magnetar_core.version import VERSION
from magnetar_core.wire import common_pb2 as common

log = logging.getLogger(__name__)

SCOPE = "magnetar"


def tracer_of(provider: Any) -> Any:
    """Return the tracer of Magnetar from a provider."""
    return provider.get_tracer(SCOPE, VERSION)


class OtelSpan:
    """A span that has begun; see spans.Span."""

    __slots__ = ("_span", "_traceparent", "trace_id")

    def __init__(self, span: Any) -> None:
        self._span = span
        self._traceparent = b""
        self.trace_id: str = trace.format_trace_id(span.get_span_context().trace_id)

    @property
    def traceparent(self) -> bytes:
        """The header that names this span to other processes."""
        if not self._traceparent:
            self._traceparent = header_of(self._span)
        return self._traceparent

    @property
    def context(self) -> Any:
        """The context of OpenTelemetry in which this is the current span."""
        return trace.set_span_in_context(self._span)

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note that something happened meanwhile."""
        self._span.add_event(name, attributes)

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def end(self, error: str = "") -> None:
        """End the span. Repeating it is harmless."""
        if not self._span.is_recording():
            return
        if error:
            self._span.set_attribute(ERROR_TYPE, shortened(error))
            self._span.set_status(trace.StatusCode.ERROR)
        try:
            self._span.end()
        except Exception:
            # At a client, what takes the spans is the application's.
            log.exception("a span could not be given to the exporter")

    def answered(self, answer: Any) -> None:
        """End the span of a command with its answer: a response, or a ServerError."""
        self.end(code_name(answer.code) if isinstance(answer, common.ServerError) else "")


def header_of(span: Any) -> bytes:
    """Return the header that names a span of OpenTelemetry; empty: the program makes no spans."""
    found = span.get_span_context()
    if not found.is_valid:
        return b""
    return TraceParent(found.trace_id, found.span_id, found.trace_flags.sampled).encode()


def remote_span(parent: TraceParent) -> Any:
    """Return the SpanContext of OpenTelemetry for a span of another process."""
    flags = trace.TraceFlags.SAMPLED if parent.sampled else trace.TraceFlags.DEFAULT
    return trace.SpanContext(parent.trace_id, parent.span_id, True, trace.TraceFlags(flags))


def context_of(parent: TraceParent) -> Any:
    """Return the context of OpenTelemetry in which a span of another process is the current one."""
    remote = trace.NonRecordingSpan(remote_span(parent))
    return trace.set_span_in_context(remote, otel_context.Context())


class OtelServerTraces:
    """Spans of a server; see spans.ServerTraces."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def command(self, name: str, command: Any, traceparent: bytes) -> OtelSpan | None:
        """Begin the span of a command that came; None: it is not recorded."""
        parent = parse(traceparent) if traceparent else None
        if parent is None:
            # A client that sends a damaged header is treated like one that sends none.
            if name not in ROOTS:
                return None
        elif not parent.sampled:
            return None
        try:
            description = describe(name, command)
            if description is None:
                return None
            return self._begin(description, parent, trace.SpanKind.SERVER)
        except Exception:
            log.exception("a span of %s could not be made", name)
            return None

    def work(
        self, description: Description, parent: bytes, *, is_request: bool = False
    ) -> OtelSpan | None:
        """Begin the span of something that the server does by itself; None: it is not recorded."""
        found = parse(parent)
        if found is None or not found.sampled:
            return None
        kind = trace.SpanKind.CLIENT if is_request else trace.SpanKind.INTERNAL
        return self._begin(description, found, kind)

    def _begin(
        self, description: Description, parent: TraceParent | None, kind: Any
    ) -> OtelSpan | None:
        context = otel_context.Context() if parent is None else context_of(parent)
        span = self._tracer.start_span(
            description.name, context=context, kind=kind, attributes=description.attributes
        )
        return OtelSpan(span) if span.is_recording() else None
