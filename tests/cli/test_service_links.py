"""Variables of Kubernetes' Services are not settings, though some look so."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from magnetar_cli.program import cli, service_links

OF_MAGNETAR = {
    "MAGNETAR_SERVICE_HOST": "10.96.0.7",
    "MAGNETAR_SERVICE_PORT": "6650",
    "MAGNETAR_SERVICE_PORT_COMMANDS": "6650",
    "MAGNETAR_PORT": "tcp://10.96.0.7:6650",
    "MAGNETAR_PORT_6650_TCP": "tcp://10.96.0.7:6650",
    "MAGNETAR_PORT_6650_TCP_PROTO": "tcp",
    "MAGNETAR_PORT_6650_TCP_PORT": "6650",
    "MAGNETAR_PORT_6650_TCP_ADDR": "10.96.0.7",
}
SETTINGS = {"MAGNETAR_BROKER": "magnetar:6650", "MAGNETAR_STREAM_PORT": "6660"}


def test_variables_of_a_service_are_known_by_its_port() -> None:
    others = {"KAFKA_PORT": "tcp://10.96.0.8:9092", **SETTINGS}
    assert service_links({**OF_MAGNETAR, **others}) == list(OF_MAGNETAR)
    assert service_links(others) == []
    # As the manifests of a server set it over the link.
    assert service_links({**OF_MAGNETAR, "MAGNETAR_PORT": "6650"}) == []
    ipv6 = {"MAGNETAR_METRICS_PORT": "tcp://[fd00::7]:9650", "MAGNETAR_METRICS_SERVICE_HOST": "f"}
    assert service_links({**ipv6, **SETTINGS}) == list(ipv6)


def test_commands_work_in_a_pod_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAGNETAR_PORT was no valid integer: nothing worked beside the manifests' own pods."""
    for name, text in {**OF_MAGNETAR, **SETTINGS}.items():
        monkeypatch.setenv(name, text)
    result = CliRunner().invoke(cli, ["config", "show", "--changed", "--json"])
    assert result.exit_code == 0, result.output
    assert "stream_port" in result.stdout
    assert '"port"' not in result.stdout
    assert "set enableServiceLinks: false" in result.stderr
    assert "did you mean" not in result.stderr
