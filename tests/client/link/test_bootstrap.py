"""connect(): how long it tries to reach a first server, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.fakes import FAST, FakeCluster, connect
from tests.core.stream_world import served
from tests.playbook import HOLD
from tests.virtual_time import run, time_passes
from tests.waiting import turns

import magnetar
from magnetar import ClientConfig, ClusterMismatch, InvalidArgument, LogUnavailable
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.transport.transport import LinkClosed

PATIENT = dataclasses.replace(FAST, bootstrap_timeout_ms=10_000, operation_timeout_ms=30_000)


async def failed(
    cluster: FakeCluster, config: ClientConfig = PATIENT
) -> tuple[MagnetarError, float]:
    """Return why connect() fails, and after how many seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(MagnetarError) as caught:
        await connect(cluster, config)
    return caught.value, round(loop.time() - began_s, 1)


def test_a_server_that_cannot_be_reached_is_named_with_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    cluster.net.is_reachable = False
    error, seconds = run(failed(cluster))
    assert isinstance(error, LogUnavailable)
    assert str(error) == "no server could be reached within 10000 ms: unreachable"
    assert isinstance(error.__cause__, LinkClosed)
    assert seconds == 10
    # A person hears of it at once, and once.
    told = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.getMessage() for one in told] == ["unreachable; trying again"]


def test_a_short_operation_timeout_counts_for_connect_too() -> None:
    cluster = FakeCluster()
    cluster.net.is_reachable = False
    error, seconds = run(failed(cluster, FAST))
    assert isinstance(error, LogUnavailable)
    assert "unreachable" in str(error)
    assert seconds == 2


def test_a_server_that_is_started_after_its_client_is_found() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.net.is_reachable = False
        connecting = asyncio.create_task(connect(cluster, config=PATIENT))
        await time_passes(9)
        cluster.net.is_reachable = True
        async with await connecting:
            pass

    run(scenario())


def test_a_server_that_was_reached_has_the_time_of_an_operation() -> None:
    """It recovers: its port is open, and what it is asked waits."""
    cluster = FakeCluster()
    cluster.play.when("get_cluster_info").always(HOLD)
    error, seconds = run(failed(cluster))
    assert isinstance(error, OutcomeUnknown)
    assert seconds == 30


def test_a_server_that_refuses_this_client_says_so_at_once() -> None:
    cluster = FakeCluster()
    cluster.play.when("hello").always(ClusterMismatch("another list of members"))
    error, seconds = run(failed(cluster))
    assert isinstance(error, ClusterMismatch)
    assert seconds == 0


def test_a_later_request_names_the_cause_too(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        async with await connect(cluster) as client:
            for _ in range(2):
                caplog.clear()
                cluster.net.is_reachable = False
                cluster.net.break_links()
                await turns(3)
                with pytest.raises(LogUnavailable, match="was not sent; unreachable") as caught:
                    await client.admin.topics.list()
                assert isinstance(caught.value.__cause__, LinkClosed)
                # Once for each time that the server goes away.
                assert caplog.messages.count("unreachable; trying again") >= 1
                warned = [one for one in caplog.records if one.levelno == logging.WARNING]
                assert [one.getMessage() for one in warned] == ["unreachable; trying again"]
                cluster.net.is_reachable = True
                await client.admin.topics.list()

    run(scenario())


@asynccontextmanager
async def web_server() -> AsyncIterator[str]:
    """Answers every request with a page. Yields its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def test_another_program_at_the_port_is_no_matter_of_patience() -> None:
    async def scenario() -> None:
        async with web_server() as address:
            with pytest.raises(InvalidArgument, match="an HTTP/1 server answers there"):
                await magnetar.connect(address)

    asyncio.run(scenario())


def test_another_program_at_one_of_the_addresses_does_not_matter() -> None:
    async def scenario() -> None:
        async with web_server() as web, served() as world:
            # The other server of this test speaks no version of the protocol; it was asked, too.
            with pytest.raises(MagnetarError, match="this client speaks 2, the server at"):
                await magnetar.connect(f"{web},{world.server.address}")

    asyncio.run(scenario())


def test_each_address_has_its_cause() -> None:
    async def scenario() -> None:
        config = ClientConfig(bootstrap_timeout_ms=300)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            refused = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(LogUnavailable) as caught:
                await magnetar.connect(f"{refused},no-such-host.invalid:1", config=config)
        assert f"{refused}: Connection refused" in str(caught.value)
        assert "'no-such-host.invalid' cannot be resolved" in str(caught.value)

    asyncio.run(scenario())
