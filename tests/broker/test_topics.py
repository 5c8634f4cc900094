"""A broker of several knows all topics, and keeps the partitions of its shard."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import Client, World, run, send, subscribe

from magnetar_core.errors import Gone, PartitionMoved, TopicExists, TopicNotFound
from magnetar_core.ids import PartitionName
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import new_topic_id, serial_of, shard_of
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

SECOND = MemberAddress(name="broker-1", address="127.0.0.1:6651")
TWO: dict[str, Any] = {
    "brokers": (MemberAddress(name="broker-0", address="127.0.0.1:6650"), SECOND),
}


def here_and_there(world: World) -> tuple[int, int]:
    """The numbers of the partition of topic "t" that lies here, and of the other."""
    (here,) = world.broker.topics.get("t").hosted
    return here, 1 - here


def test_ids_of_a_broker_that_is_alone_are_small_numbers() -> None:
    async def scenario(world: World) -> None:
        created = await world.client.ask(topic_wire.CommandCreateTopic(topic="u", partitions=3))
        assert created.topic_id == 2
        assert len(world.broker.topics.get("u").partitions) == 3

    run(scenario)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"partitions": 1}, "partitions 2, not 1"),
        ({"retention_ms": 7}, "retention_ms 0, not 7"),
        ({"retention_bytes": 7}, "retention_bytes 0, not 7"),
        ({"retain_unconsumed": topic_wire.NO}, "unconsumed messages kept, not removed"),
        ({"partitions": 0, "retention_ms": 7}, "partitions 2, not 1, retention_ms 0, not 7"),
    ],
)
def test_a_topic_may_exist_if_its_settings_are_those_that_are_wanted(
    other: dict[str, Any], said: str
) -> None:
    async def scenario(world: World) -> None:
        def create(**settings: Any) -> topic_wire.CommandCreateTopic:
            wanted: dict[str, Any] = {"topic": "u", "partitions": 2, "exist_ok": True} | settings
            return topic_wire.CommandCreateTopic(**wanted)

        ask = world.client.ask
        made = await ask(create())
        assert await ask(create()) == made
        with pytest.raises(TopicExists, match=f"'u' exists with {said}$"):
            await ask(create(**other))
        with pytest.raises(TopicExists):
            await ask(create(exist_ok=False))
        await world.restart()
        assert await world.client.ask(create()) == made

    run(scenario)


@pytest.mark.parametrize("settings", [{}, TWO])
def test_the_first_broker_says_that_an_invented_shard_holds_nothing(
    settings: dict[str, Any],
) -> None:
    """A commit with such a participant waited for ever: every broker said that another keeps it."""

    async def scenario(world: World) -> None:
        invented = new_topic_id("t", 1, 1) | 57 << 51 | 3 << 40
        assert shard_of(invented, 0) == 3
        with pytest.raises(Gone):
            await world.client.ask(send(b"0", topic_id=invented))
        assert world.broker.topics.find(PartitionName("t", 0, invented)) is None

    run(scenario, **settings)


def test_a_partition_elsewhere_has_moved_and_is_never_gone() -> None:
    """docs/design/0008-cluster.md: Gone is what a coordinator takes for ended."""

    async def scenario(world: World) -> None:
        topics, ask = world.broker.topics, world.client.ask
        here, there = here_and_there(world)
        topic_id = topics.get("t").topic_id
        await ask(send(b"0", number=here))
        where = TWO["brokers"][1 - world.broker.environment.config.shard]
        for named in (topic_id, 0):
            with pytest.raises(PartitionMoved, match=f"{where.name} keeps .*{where.address}"):
                await ask(send(b"0", number=there, topic_id=named))
        with pytest.raises(PartitionMoved):
            await ask(subscribe(number=there))
        with pytest.raises(PartitionMoved):
            topics.find(PartitionName("t", there, topic_id))
        with pytest.raises(TopicNotFound):
            await ask(send(b"0", number=2, topic_id=topic_id))
        topics.delete(topics.get("t"))
        with pytest.raises(PartitionMoved):
            await ask(send(b"0", number=there, topic_id=topic_id))
        with pytest.raises(PartitionMoved):
            topics.find(PartitionName("t", there, topic_id))
        with pytest.raises(Gone):
            await ask(send(b"0", number=here, topic_id=topic_id))
        assert topics.find(PartitionName("t", here, topic_id)) is None

    run(scenario, **TWO)


def test_a_topic_is_described_with_the_partitions_that_lie_here() -> None:
    async def scenario(world: World) -> None:
        here, there = here_and_there(world)
        for _ in range(2):
            ask, topic = world.client.ask, world.broker.topics.get("t")
            assert serial_of(topic.topic_id) == 1
            assert topic.partition_names == tuple(
                PartitionName("t", number, topic.topic_id) for number in range(2)
            )
            assert [world.broker.topics.hosts(name) for name in topic.partition_names] == [
                here == 0,
                here == 1,
            ]
            described = await ask(topic_wire.CommandDescribeTopic(topic="t"))
            assert [one.partition for one in described.partitions] == [here]
            assert described.partition_count == 2
            (summary,) = (await ask(topic_wire.CommandListTopics())).topics
            assert summary.partitions == 2
            offsets = await ask(wire.CommandListOffsets(topic="t"))
            assert [one.partition for one in offsets.partitions] == [here]
            with pytest.raises(PartitionMoved):
                await ask(wire.CommandListOffsets(topic="t", partitions=[there]))
            looked_up = await ask(topic_wire.CommandLookup(topic="t"))
            addresses = [one.address for one in TWO["brokers"]]
            assert list(looked_up.broker_addresses) == [
                addresses[shard_of(topic.topic_id, number)] for number in range(2)
            ]
            info = await ask(topic_wire.CommandGetClusterInfo())
            assert [broker.name for broker in info.brokers] == ["broker-0", "broker-1"]
            await world.restart()

    run(scenario, **TWO)


def test_what_names_no_partition_here_reaches_no_other() -> None:
    async def scenario(world: World) -> None:
        here, _ = here_and_there(world)
        await world.client.ask(send(b"0", number=here))
        assert await world.read(number=here) == [b"0"]
        with pytest.raises(PartitionMoved):
            await Client(world).ask(
                wire.CommandRead(partition=common.Partition(topic="t", partition=1 - here))
            )

    run(scenario, **TWO)
