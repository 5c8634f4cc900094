"""The option `traces` of connect()."""

from __future__ import annotations

import asyncio
import sys

import pytest
from opentelemetry import trace
from tests.client.fakes import FAST

import magnetar
from magnetar.connecting import _traces
from magnetar.link.traces import ClientTraces
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2


def test_true_means_the_provider_of_the_program() -> None:
    made = _traces(True)
    assert isinstance(made, ClientTraces)


def test_without_opentelemetry_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'magnetar\[traces\]'"):
        asyncio.run(magnetar.connect("127.0.0.1:1", config=FAST, traces=True))


def test_a_program_without_a_provider_sends_no_header() -> None:
    """Servers begin traces then, as for programs that make none."""
    made = ClientTraces(trace.NoOpTracerProvider())
    span = made.request(broker_pb2.CommandSend(), None)
    assert span is not None
    assert span.traceparent == b""
