"""Spans of programs that process messages. It needs OpenTelemetry: `magnetar[traces]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace

from magnetar.message import Message
from magnetar_core.traces.descriptions import processing as description_of
from magnetar_core.traces.otel import remote_span, tracer_of
from magnetar_core.traces.traceparent import TRACEPARENT, parse

__all__ = ["processing"]


@contextmanager
def processing(
    *messages: Message, provider: trace.TracerProvider | None = None
) -> Iterator[trace.Span]:
    """Make a span around the processing of messages, with links to the spans that sent them.

        async for message in consumer:
            with processing(message):
                ...

    A message tells which span sent it if its producer makes traces, or sets the property
    `traceparent` (W3C Trace Context), as instrumentation of Kafka's clients does. An exception that
    leaves the block is noted in the span, and goes on.

    Args:
        messages: of a topic; at least one.
        provider: makes the span; None: the provider of the program.
    Source: OpenTelemetry, Semantic conventions for messaging spans.
    """
    if not messages:
        raise ValueError("give the messages that are processed")
    description = description_of(messages[0].topic, len(messages), _partition_of(messages))
    tracer = tracer_of(provider or trace.get_tracer_provider())
    with tracer.start_as_current_span(
        description.name,
        kind=trace.SpanKind.CONSUMER,
        attributes=description.attributes,
        links=list(_links(messages)),
    ) as span:
        yield span


def _partition_of(messages: Sequence[Message]) -> int | None:
    """Return the partition of the messages; None: there are several."""
    partitions = {one.partition for one in messages}
    return partitions.pop() if len(partitions) == 1 else None


def _links(messages: Sequence[Message]) -> Iterator[trace.Link]:
    for message in messages:
        parent = parse(message.properties.get(TRACEPARENT, "").encode())
        if parent is not None:
            yield trace.Link(remote_span(parent))
