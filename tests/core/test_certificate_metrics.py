"""The metric that tells when a server's certificate expires."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.certificates import Authority

from magnetar_core.clock import SystemClock
from magnetar_core.security.certificate_metrics import NAME, tell_expiry


def shown(registry: CollectorRegistry) -> float:
    value = registry.get_sample_value(NAME)
    assert value is not None
    return value


def test_it_is_when_the_certificate_expires_also_after_it_was_renewed(tmp_path: Path) -> None:
    authority, registry = Authority(tmp_path), CollectorRegistry()
    now_s = SystemClock().wall_ms() / 1_000
    pair = authority.sign("server", lasts=timedelta(days=3))
    tell_expiry(registry, pair.certificate_file)
    assert shown(registry) - now_s == pytest.approx(timedelta(days=3).total_seconds(), abs=300)
    authority.sign("server", lasts=timedelta(days=9))
    assert shown(registry) - now_s == pytest.approx(timedelta(days=9).total_seconds(), abs=300)
    authority.sign("server", expired=True)
    assert 0 < shown(registry) < now_s


def test_a_chain_is_as_good_as_the_server_itself(tmp_path: Path) -> None:
    """Authorities between follow in the file; they expire later."""
    authority, registry = Authority(tmp_path), CollectorRegistry()
    now_s = SystemClock().wall_ms() / 1_000
    own = Path(authority.sign("server", lasts=timedelta(days=3)).certificate_file)
    longer = Path(authority.sign("between", lasts=timedelta(days=300)).certificate_file)
    own.write_bytes(own.read_bytes() + longer.read_bytes())
    tell_expiry(registry, str(own))
    assert shown(registry) - now_s < timedelta(days=4).total_seconds()


def test_a_file_that_cannot_be_read_raises_the_alarm(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    file = tmp_path / "server.pem"
    tell_expiry(registry, str(file))
    assert shown(registry) == 0
    file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert shown(registry) == 0


def test_without_tls_there_is_none() -> None:
    registry = CollectorRegistry()
    tell_expiry(registry, "")
    assert registry.get_sample_value(NAME) is None
