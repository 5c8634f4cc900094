"""Spans of a client, for programs that make traces.

Only a client that was told to make traces imports this module. The provider is the application's.
Source: docs/design/0013-traces.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message
from opentelemetry import context as otel_context
from opentelemetry import trace

from magnetar_core.errors import MagnetarError, code_name
from magnetar_core.ids import TxnID
from magnetar_core.traces.descriptions import (
    SYSTEM,
    Description,
    describe,
    txn_attributes,
    txn_id_of,
)
from magnetar_core.traces.otel import OtelSpan, header_of, tracer_of
from magnetar_core.traces.traceparent import TRACEPARENT
from magnetar_core.transport.columns.kinds import Row
from magnetar_core.transport.frames import name_of
from magnetar_core.wire import broker_pb2

log = logging.getLogger("magnetar")


class ClientTraces:
    """Makes the spans of a client.

    Args:
        provider: a TracerProvider.
    """

    def __init__(self, provider: Any) -> None:
        self._tracer = tracer_of(provider)
        # Spans of transactions that have begun and not ended here.
        self._transactions: dict[TxnID, OtelSpan] = {}

    def current(self) -> Any:
        """Return the context of OpenTelemetry at this place of the program."""
        return otel_context.get_current()

    def carried(self, properties: Any) -> Any:
        """Return the properties of a message, with one that names the program's current span.

        Other things than mappings stay as they are: the producer refuses them.
        """
        header = header_of(trace.get_current_span())
        if not header or not (properties is None or isinstance(properties, Mapping)):
            return properties
        return {TRACEPARENT: header.decode(), **(properties or {})}

    def request(self, body: Message | Row, context: Any) -> OtelSpan | None:
        """Begin the span of a command that is about to leave; None: the command has none.

        A command of a transaction of this client belongs to the transaction's span.

        Args:
            context: the context of OpenTelemetry in which the program asked for it; None: the
                present one.
        """
        if isinstance(body, broker_pb2.CommandAck) and not body.HasField("txn_id"):
            # There are as many as messages.
            return None
        description = describe(name_of(body), body)
        if description is None:
            return None
        owner = self._owner_of(body)
        if owner is not None:
            context = owner.context
        return self._begin(description, context, trace.SpanKind.CLIENT)

    def transaction(self) -> OtelSpan:
        """Begin the span of a transaction."""
        return self._begin(Description("transaction", SYSTEM), None, trace.SpanKind.INTERNAL)

    def _begin(self, description: Description, context: Any, kind: Any) -> OtelSpan:
        """Begin a span. If it cannot be made, the result is one that is not recorded."""
        try:
            span = self._tracer.start_span(
                description.name, context=context, kind=kind, attributes=description.attributes
            )
        except Exception:
            # The sampler, and what takes the spans, are the application's.
            log.exception("the span %r could not be made", description.name)
            span = trace.INVALID_SPAN
        return OtelSpan(span)

    @contextmanager
    def inside(self, span: OtelSpan) -> Iterator[None]:
        """Make a span the current one."""
        token = otel_context.attach(span.context)
        try:
            yield
        finally:
            otel_context.detach(token)

    def begun(self, txn_id: TxnID, span: OtelSpan) -> None:
        """Note the id of a transaction: its commands belong to its span from now on."""
        span.note(txn_attributes(txn_id))
        self._transactions[txn_id] = span

    def ended(self, txn_id: TxnID, span: OtelSpan) -> None:
        """Note that a transaction has ended here."""
        if self._transactions.get(txn_id) is span:
            del self._transactions[txn_id]

    def ending(self, span: OtelSpan, on_reply: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that ends a span with a request's result, and passes that on."""

        def on_result(result: Any) -> None:
            span.end(self.error_type(result) if isinstance(result, Exception) else "")
            on_reply(result)

        return on_result

    def error_type(self, error: BaseException) -> str:
        """Return the name of an error in spans: that of its code, or else of its class."""
        return code_name(error.code) if isinstance(error, MagnetarError) else type(error).__name__

    def _owner_of(self, body: Any) -> OtelSpan | None:
        txn_id = txn_id_of(body)
        return None if txn_id is None else self._transactions.get(txn_id)
