"""Whoever speaks another version of the protocol is told who has to be upgraded, by everybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.harness import World as BrokerWorld
from tests.client.fakes import FakeCluster, run
from tests.coordinator.fakes import World as CoordinatorWorld
from tests.virtual_time import run as run_in_virtual_time

from magnetar import Client
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import UnsupportedVersion
from magnetar_core.protocol_version import PROTOCOL_VERSION, check_client, check_server
from magnetar_core.wire import common_pb2

Ask = Callable[[Any], Awaitable[Any]]


async def ask_broker(hello: common_pb2.CommandHello) -> Any:
    world = BrokerWorld()
    await world.start()
    try:
        return await world.client.ask(hello)
    finally:
        await world.stop()


async def ask_coordinator(hello: common_pb2.CommandHello) -> Any:
    world = await CoordinatorWorld().start()
    try:
        return await world.client.ask(hello)
    finally:
        await world.close()


servers = pytest.mark.parametrize("ask", [ask_broker, ask_coordinator])


@servers
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PROTOCOL_VERSION + 3, r"'app' speaks 5, the server 2: upgrade servers first"),
        (0, r"'app' does not say which version .* the server speaks 2: set protocol_version"),
    ],
)
def test_servers_refuse_another_version_alike(ask: Ask, given: int, said: str) -> None:
    async def scenario() -> None:
        hello = common_pb2.CommandHello(protocol_version=given, client_name="app")
        with pytest.raises(UnsupportedVersion, match=said) as refused:
            await ask(hello)
        assert refused.value.kind is ErrorKind.FIX
        assert refused.value.details == {"client": str(given), "server": str(PROTOCOL_VERSION)}

    asyncio.run(scenario())


@servers
def test_servers_take_their_own_version(ask: Ask) -> None:
    async def scenario() -> None:
        answer = await ask(common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION))
        assert answer.protocol_version == PROTOCOL_VERSION

    asyncio.run(scenario())


@servers
def test_the_version_comes_before_the_cluster(ask: Ask) -> None:
    """What another version means by a cluster's hash, nobody knows here."""

    async def scenario() -> None:
        with pytest.raises(UnsupportedVersion):
            await ask(common_pb2.CommandHello(protocol_version=9, cluster_hash="another"))

    asyncio.run(scenario())


def test_the_advice_names_the_older_side() -> None:
    check_client(3, "app", ours=3)
    with pytest.raises(UnsupportedVersion, match="'app' speaks 4, the server 3: upgrade servers"):
        check_client(4, "app", ours=3)
    with pytest.raises(UnsupportedVersion, match="'app' speaks 2, the server 3: upgrade this cl"):
        check_client(2, "app", ours=3)
    with pytest.raises(UnsupportedVersion, match=r"^this client does not say"):
        check_client(0, "", ours=3)
    check_server(3, "b:1", ours=3)
    with pytest.raises(UnsupportedVersion, match="speaks 3, the server at b:1 2: upgrade servers"):
        check_server(2, "b:1", ours=3)
    with pytest.raises(UnsupportedVersion, match="speaks 3, the server at b:1 4: upgrade this cl"):
        check_server(4, "b:1", ours=3)


@pytest.mark.parametrize("given", [0, PROTOCOL_VERSION + 1])
def test_a_client_asks_nothing_of_a_server_that_answers_in_another_version(given: int) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        await client.create_producer("flights")
        cluster.protocol_version = given
        before = cluster.hello_count
        cluster.net.break_links()
        with pytest.raises(UnsupportedVersion, match=f"server at .* {given}"):
            await client.admin.topics.list()
        assert cluster.hello_count == before + 1, "asking again cannot help"

    run(test)


def test_a_coordinator_links_to_no_broker_of_another_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        world = await CoordinatorWorld().start()
        world.broker.answer = lambda name, body: (
            common_pb2.CommandHelloResponse(protocol_version=7) if name == "hello" else None
        )
        with caplog.at_level(logging.ERROR):
            world.broker.received.clear()
            world.transport.break_links()
            await world.settle(30)
        assert "this client speaks 2, the server at" in caplog.text
        assert set(world.broker.names()) == {"hello"}, "it tells that broker nothing"
        await world.close()

    run_in_virtual_time(scenario())
