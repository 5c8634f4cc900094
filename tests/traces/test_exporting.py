"""Spans on their way to a collector that takes them, refuses them, hangs, or is not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from prometheus_client import CollectorRegistry
from tests.core.ports import free_ports
from tests.traces.collector import collector

from magnetar_core.config import InvalidConfig
from magnetar_core.traces.config import TracesConfig
from magnetar_core.traces.exporting import ExportedTraces
from magnetar_core.traces.opening import open_traces
from magnetar_core.wire import broker_pb2, common_pb2

SEND = broker_pb2.CommandSend(partition=common_pb2.Partition(topic="invoices", partition=1))


class Server:
    """The tracing of a server."""

    def __init__(self, endpoint: str, **constants: int) -> None:
        self.registry = CollectorRegistry()
        config = TracesConfig(traces_endpoint=endpoint, traces_sample_ratio=1.0)
        self.traces = ExportedTraces(config, "broker", "broker-7", self.registry, **constants)

    def make(self, count: int) -> None:
        for _ in range(count):
            span = self.traces.server.command("send", SEND, b"")
            assert span is not None
            span.answered(broker_pb2.CommandSendResponse())

    def exported(self) -> float | None:
        return self.registry.get_sample_value("magnetar_traces_exported_spans_total")

    def dropped(self, reason: str) -> float | None:
        return self.registry.get_sample_value(
            "magnetar_traces_dropped_spans_total", {"reason": reason}
        )


@contextmanager
def patience(monkeypatch: pytest.MonkeyPatch, seconds: str) -> Iterator[None]:
    """Set how long OpenTelemetry tries to post a batch, and how soon it begins."""
    with monkeypatch.context() as patched:
        patched.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", seconds)
        patched.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        yield


def test_a_collector_gets_spans_by_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-collector")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with collector() as one:
        server = Server(one.url)
        server.make(3)
        server.traces.close()
        assert [span.name for span in one.spans()] == ["send invoices"] * 3
        resource = one.resource()
        assert resource["service.name"] == "magnetar-broker"
        assert resource["service.instance.id"] == "broker-7"
        assert resource["deployment.environment.name"] == "test"
        assert set(one.paths) == {"/v1/traces"}
        assert one.headers["authorization"] == "Bearer of-the-collector"
        attributes = {one.key: one.value for one in one.spans()[0].attributes}
        assert attributes["messaging.system.name"].string_value == "magnetar"
        assert attributes["messaging.destination.name"].string_value == "invoices"
    assert server.exported() == 3
    assert server.dropped("stopped") == 0


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing-log")
    with collector() as one:
        server = Server(one.url + "/custom/path")
        server.make(1)
        server.traces.close()
        assert one.resource()["service.name"] == "billing-log"
        assert one.paths == ["/custom/path"]


def test_a_collector_that_hangs_costs_spans_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with patience(monkeypatch, "60"), collector() as one:
        one.hanging = True
        server = Server(one.url, queue_spans=100, flush_ms=100)
        server.make(1)
        assert one.arrived.wait(30)
        server.make(500)
        # One is at the collector, and 99 wait.
        assert server.dropped("queue full") == 401
        began_s = monotonic()
        server.traces.close()
        assert monotonic() - began_s < 15
        assert server.dropped("stopped") == 100
        assert server.exported() == 0
        server.make(1)
        assert server.dropped("stopped") == 101


def test_a_collector_that_is_away_costs_spans_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with patience(monkeypatch, "0.01"):
        server = Server(f"http://127.0.0.1:{free_ports(1)[0]}", flush_ms=20_000)
        server.make(3)
        server.traces.close()
    assert server.exported() == 0
    assert server.dropped("not taken") == 3
    assert server.dropped("stopped") == 0


def test_what_a_collector_refuses_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with patience(monkeypatch, "5"), collector() as one:
        one.status = 400
        server = Server(one.url)
        server.make(2)
        server.traces.close()
        assert len(one.spans()) == 2
    assert server.dropped("not taken") == 2


def test_closing_twice_is_harmless() -> None:
    with collector() as one:
        server = Server(one.url)
        server.traces.close()
        server.traces.close()
    assert server.dropped("stopped") == 0


def test_without_an_endpoint_nothing_is_opened_and_nothing_is_imported() -> None:
    assert open_traces(TracesConfig(), "broker", "broker-0", CollectorRegistry()) is None
    modules = "magnetar, magnetar.blocking, magnetar_cli.servers.server_process"
    others = "magnetar_cli.servers.member_process, magnetar_coordinator.coordinator"
    program = f"import sys, {modules}, {others}; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "magnetar_core.traces.exporting", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    config = TracesConfig(traces_endpoint="http://127.0.0.1:4318")
    with pytest.raises(InvalidConfig, match=r"pip install 'magnetar\[traces\]'"):
        open_traces(config, "broker", "broker-0", CollectorRegistry())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"traces_endpoint": "collector:4318"}, "not the address of a collector"),
        ({"traces_endpoint": "http://"}, "not the address of a collector"),
        ({"traces_endpoint": "http://collector:port"}, "not the address of a collector"),
        ({"traces_endpoint": "http://name:word@collector"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"traces_endpoint": "http://collector?token=x"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"traces_sample_ratio": 1.1}, "from 0 to 1"),
        ({"traces_sample_ratio": -0.1}, "must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        TracesConfig(**settings)  # type: ignore[arg-type]


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(InvalidConfig) as refused:
        TracesConfig(traces_endpoint="ftp://name:word@collector")
    assert "word" not in str(refused.value).replace("password", "")


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("http://collector/v1/traces", "http://collector/v1/traces"),
    ],
)
def test_the_path_is_added(endpoint: str, url: str) -> None:
    assert TracesConfig(traces_endpoint=endpoint).url == url
