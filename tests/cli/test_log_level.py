"""`magnetar log-level` at real servers."""

from __future__ import annotations

from tests.cli.running import Standalone


def test_a_level_is_shown_and_changed(standalone: Standalone) -> None:
    for server in ("broker", "coordinator"):
        at = standalone.ready()[server]["address"]
        assert standalone.lines("log-level", at) == ["the log: info"]
        assert standalone.lines("log-level", at, "debug") == ["the log: debug; it was info"]
        assert standalone.lines("log-level", at) == ["the log: debug"]
        logger = ("--logger", "magnetar_core.server.grpc_server")
        assert standalone.lines("log-level", at, *logger) == [
            "magnetar_core.server.grpc_server: inherited"
        ]
        standalone.run("log-level", at, "error", *logger)
        assert standalone.lines("log-level", at, "inherited", *logger) == [
            "magnetar_core.server.grpc_server: inherited; it was error"
        ]
        standalone.run("log-level", at, "info")


def test_a_server_may_be_named(standalone: Standalone) -> None:
    for name in ("broker-0", "coordinator-0"):
        assert standalone.lines("log-level", name) == ["the log: info"]
    refused = standalone.run("log-level", "broker-7", status=1)
    assert b"the cluster has no server 'broker-7'; it has broker-0, coordinator-0" in refused.stderr


def test_what_the_server_refuses_is_told(standalone: Standalone) -> None:
    refused = standalone.run("log-level", "broker-0", "debug", "--logger", "no.such", status=1)
    assert b"has no logger 'no.such'" in refused.stderr
    standalone.run("log-level", "broker-0", "loud", status=2)


def test_nobody_answers(standalone: Standalone) -> None:
    told = standalone.run("log-level", "127.0.0.1:1", status=10)
    assert b"127.0.0.1:1" in told.stderr
