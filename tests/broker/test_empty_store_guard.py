"""A broker whose data directory has vanished does not serve from an empty store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.harness import Client, World, end, subscribe, txn, watermark
from tests.broker.test_accepted_losses import accept_loss, incarnation

from magnetar_core.errors import LogUnavailable
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.store import WriteBatch

MEMBERS: dict[str, Any] = {
    "cluster_hash": "abc",
    "coordinators": tuple(
        MemberAddress(name=f"coordinator-{tcid}", address=f"127.0.0.1:{tcid + 1}", tcid=tcid)
        for tcid in (0, 1)
    ),
}
CREATE = topic_wire.CommandCreateTopic(topic="t", partitions=2)


async def empty_world() -> World:
    world = World(**MEMBERS)
    await world._open()
    return world


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_new_cluster_begins_when_every_coordinator_has_an_incarnation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO, "magnetar_broker.topic_directory.guards")
        world = await empty_world()
        assert "serves when coordinator-0, coordinator-1 have begun with it" in caplog.text
        # Nothing is wrong with a new cluster.
        assert {one.levelno for one in caplog.records} == {logging.INFO}
        for tcid in (0, 1):
            with pytest.raises(LogUnavailable, match=r"waits for .*coordinator-1"):
                await world.client.ask(CREATE)
            await world.client.ask(common.CommandHello(protocol_version=PROTOCOL_VERSION))
            await world.client.ask(topic_wire.CommandGetClusterInfo())
            assert await incarnation(world, tcid, f"token {tcid}") == 1
        await world.client.ask(CREATE)
        caplog.clear()
        await world.restart()
        assert not caplog.records
        await world.client.ask(subscribe())
        await world.stop()

    run(scenario)


def test_coordinators_of_an_old_cluster_are_told_nothing_that_they_could_take_for_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An end at a topic that is gone counts as done: it must not come to that."""

    async def scenario() -> None:
        world = await empty_world()
        for _ in range(3):
            for command in (watermark(5, incarnation=3), end(txn(1)), end(txn(1), on="s"), CREATE):
                with pytest.raises(LogUnavailable, match="store is empty"):
                    await world.client.ask(command)
        complaints = [one for one in caplog.records if one.levelno == logging.CRITICAL]
        assert len(complaints) == 1, "it is told once"
        assert "accept-loss --everything" in complaints[0].getMessage()
        await world.restart()
        with pytest.raises(LogUnavailable):
            await world.client.ask(CREATE)
        # One that comes anew does not speak for the other.
        await incarnation(world, 1, "new")
        with pytest.raises(LogUnavailable, match="waits for coordinator-0 "):
            await world.client.ask(CREATE)
        # By hand it goes on, with nothing of what was there given out again.
        await accept_loss(world, WriteBatch())
        await world.client.ask(watermark(5, incarnation=3))
        created = await world.client.ask(CREATE)
        assert created.topic_id > 1_000_000
        await world.client.close()
        world.client = Client(world)
        assert await incarnation(world, 0, "another") > 3
        await world.stop()

    run(scenario)


def test_without_members_nobody_is_waited_for() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        await world.client.ask(subscribe())
        await world.stop()

    run(scenario)
