"""W3C's header `traceparent`: which trace and which span a command belongs to. Pure.

Source: W3C Trace Context, https://www.w3.org/TR/trace-context/#traceparent-header.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Name of the header, and of the property of a message that has it.
TRACEPARENT: Final = "traceparent"
_SAMPLED = 0x01
# A later version may append fields, which are ignored. Nothing honest is longer than this.
_BYTES_MAX = 256
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class TraceParent(NamedTuple):
    """A span of another process, and whether its trace is recorded."""

    trace_id: int
    span_id: int
    sampled: bool

    def encode(self) -> bytes:
        """Return the header."""
        flags = _SAMPLED if self.sampled else 0
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, flags)


def parse(header: bytes) -> TraceParent | None:
    """Read a header; None: it is damaged, and means nothing."""
    found = _FORM.fullmatch(header) if len(header) <= _BYTES_MAX else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None


def trace_id_of(header: bytes) -> str:
    """Return the id of the trace as people search for it; empty: there is none."""
    parent = parse(header) if header else None
    return "" if parent is None else f"{parent.trace_id:032x}"
