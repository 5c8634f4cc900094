"""Interface between code that has something to trace and code that makes spans.

No span is waited for, and nothing here raises: a trace that is lost costs a trace. Where there are
no traces, there is None in place of these objects, and nothing else is called.
"""

from __future__ import annotations

from typing import Any, Protocol

from magnetar_core.traces.descriptions import Attributes, Description


class Span(Protocol):
    """A span that has begun."""

    @property
    def traceparent(self) -> bytes:
        """The header that names this span to other processes."""
        ...

    @property
    def trace_id(self) -> str:
        """The id of the trace, as people search for it."""
        ...

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Note that something happened meanwhile."""
        ...

    def note(self, attributes: Attributes) -> None:
        """Add attributes."""
        ...

    def end(self, error: str = "") -> None:
        """End the span. Repeating it is harmless.

        Args:
            error: the kind of the error with which it ends; empty: it ends well.
        """
        ...

    def answered(self, answer: Any) -> None:
        """End the span of a command with its answer: a response, or a ServerError."""
        ...


class ServerTraces(Protocol):
    """Makes the spans of a server."""

    def command(self, name: str, command: Any, traceparent: bytes) -> Span | None:
        """Begin the span of a command that came; None: it is not recorded.

        Args:
            name: of the command's field in the envelope.
            command: its message.
            traceparent: what its sender said of its own span.
        """
        ...

    def work(
        self, description: Description, parent: bytes, *, is_request: bool = False
    ) -> Span | None:
        """Begin the span of something that the server does by itself; None: it is not recorded.

        Args:
            parent: a traceparent; nothing is recorded without.
            is_request: whether the server waits for another one meanwhile.
        """
        ...
