"""W3C's header: https://www.w3.org/TR/trace-context/#traceparent-header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core.traces.traceparent import TraceParent, parse, trace_id_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = TraceParent(int(TRACE, 16), int(SPAN, 16), True)


def test_the_example_of_the_recommendation() -> None:
    header = f"00-{TRACE}-{SPAN}-01".encode()
    assert parse(header) == PARENT
    assert PARENT.encode() == header
    assert trace_id_of(header) == TRACE


def test_only_the_lowest_flag_says_that_it_is_recorded() -> None:
    assert parse(f"00-{TRACE}-{SPAN}-02".encode()) == PARENT._replace(sampled=False)
    assert parse(f"00-{TRACE}-{SPAN}-03".encode()) == PARENT


def test_a_later_version_may_append_fields() -> None:
    assert parse(f"01-{TRACE}-{SPAN}-01-more".encode()) == PARENT


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-01-{'a' * 300}",
    ],
)
def test_a_damaged_header_means_nothing(header: str) -> None:
    assert parse(header.encode()) is None
    assert trace_id_of(header.encode()) == ""


@given(st.binary(max_size=300))
def test_no_bytes_do_any_harm(header: bytes) -> None:
    found = parse(header)
    assert found is None or parse(found.encode()) == found


@given(
    st.integers(1, (1 << 128) - 1),
    st.integers(1, (1 << 64) - 1),
    st.booleans(),
)
def test_what_is_written_is_read(trace_id: int, span_id: int, sampled: bool) -> None:
    parent = TraceParent(trace_id, span_id, sampled)
    assert parse(parent.encode()) == parent
