"""The command line with several brokers' addresses, and the health of a whole cluster."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from tests.cli.running import Standalone

from magnetar_cli.program import cli


@pytest.fixture
def dead() -> Iterator[str]:
    """An address at which nobody listens: its port is taken, and not listened on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{one.getsockname()[1]}"


def with_broker(standalone: Standalone, addresses: str) -> Standalone:
    return dataclasses.replace(
        standalone, environ={**standalone.environ, "MAGNETAR_BROKER": addresses}
    )


def coordinators(standalone: Standalone) -> list[str]:
    found = standalone.json("health")
    return [one["address"] for one in found if one["kind"] == "coordinator"]


def test_one_address_that_answers_is_enough(standalone: Standalone, dead: str) -> None:
    live = standalone.environ["MAGNETAR_BROKER"]
    for addresses in (f"{dead},{live}", f"{live}, {dead}", f"{live},{live}"):
        program = with_broker(standalone, addresses)
        assert isinstance(program.json("topics", "list"), list)
    listed = standalone.run("--broker", f"{dead},{live}", "topics", "list", "--json")
    assert listed.stdout.startswith(b"[")


def test_a_coordinator_among_the_addresses_does_no_harm(standalone: Standalone) -> None:
    live = standalone.environ["MAGNETAR_BROKER"]
    (coordinator,) = coordinators(standalone)
    program = with_broker(standalone, f"{coordinator},{live}")
    assert isinstance(program.json("topics", "list"), list)


def test_where_nobody_answers_all_addresses_are_named(standalone: Standalone, dead: str) -> None:
    done = with_broker(standalone, f"{dead},localhost:1").run("topics", "list", status=10)
    assert dead.encode() in done.stderr
    assert b"localhost:1" in done.stderr


@pytest.mark.parametrize("wrong", ["nowhere", "a:1,http://b:2", "a:0", ","])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    for command in (["topics", "list"], ["health"]):
        result = CliRunner().invoke(cli, ["--broker", wrong, *command])
        assert result.exit_code == 1
        assert "write HOST:PORT" in result.output


def test_the_health_of_a_cluster_is_that_of_all_its_servers(
    standalone: Standalone, dead: str
) -> None:
    found = standalone.json("health")
    assert [one["kind"] for one in found] == ["broker", "coordinator"]
    assert {one["status"] for one in found} == {"SERVING"}
    assert standalone.lines("health")[0].split() == ["SERVER", "NAME", "ADDRESS", "STATUS"]
    (coordinator,) = coordinators(standalone)
    assert standalone.lines("health", coordinator) == [f"{coordinator} SERVING"]
    done = with_broker(standalone, dead).run("health", "--timeout-s", "1", status=1)
    assert f"{dead}  NO ANSWER Connection refused" in done.stdout.decode()
    assert b"members of the cluster are not known" in done.stderr
