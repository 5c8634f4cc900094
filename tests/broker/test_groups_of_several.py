"""Groups at a broker of several: it assigns its own partitions, and nothing of the others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.group_workers import GROUP, SESSION_MS, Worker, pass_time
from tests.broker.harness import World, run, send

from magnetar_broker.assignment.assignment import assign, preferred
from magnetar_core.errors import PartitionMoved, UnknownMember
from magnetar_core.ids import PartitionName
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire

FOUR: dict[str, Any] = {
    "brokers": tuple(
        MemberAddress(name=f"broker-{number}", address=f"127.0.0.1:{6650 + number}")
        for number in range(4)
    ),
}
TOPIC = "wide"


async def create(world: World) -> None:
    await world.client.ask(topic_wire.CommandCreateTopic(topic=TOPIC, partitions=16))


def names(world: World) -> tuple[PartitionName, ...]:
    return world.broker.topics.get(TOPIC).partition_names


def hosted(world: World) -> list[PartitionName]:
    return [one for one in names(world) if world.broker.topics.hosts(one)]


def share(world: World, *members: str) -> dict[PartitionName, str]:
    """What the broker is to assign, as every other broker computes it."""
    places = {f"member {member}": member for member in members}
    wanted = dict.fromkeys(places, frozenset({names(world)[0].topic_id}))
    everything = names(world)
    target = assign(everything, wanted, preferred(everything, wanted))
    return {one: places[target[one]] for one in hosted(world)}


def held(*workers: Worker) -> dict[PartitionName, str]:
    return {one: worker.member for worker in workers for one in worker.held}


async def join_all(world: World, *workers: Worker) -> None:
    for worker in workers:
        await worker.join(topics=[TOPIC])
    for _ in range(2):
        for worker in workers:
            await worker.beat()


def test_members_get_the_partitions_of_this_broker_and_no_others() -> None:
    async def scenario(world: World) -> None:
        await create(world)
        workers = [Worker(world, one) for one in ("a", "b", "c")]
        await join_all(world, *workers)
        assert len(hosted(world)) == 4
        assert held(*workers) == share(world, "a", "b", "c")
        described = await world.client.ask(group_wire.CommandDescribeGroup(group=GROUP))
        assert described.summary.partitions == len(described.partitions) == 4
        assert described.summary.members == 3
        # A restart changes nothing, and who leaves is replaced as elsewhere.
        before = [dict(one.held) for one in workers]
        await world.restart()
        again = [Worker(world, one.member) for one in workers]
        for worker, known in zip(again, before, strict=True):
            worker.held = dict(known)
            await worker.beat()
            assert worker.held == known
        await world.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="b"))
        for _ in range(2):
            for worker in again:
                if worker.member != "b":
                    await worker.beat()
        assert held(again[0], again[2]) == share(world, "a", "c")

    run(scenario, **FOUR)


def test_a_late_copy_of_a_heartbeat_gives_nothing_back() -> None:
    """Numbers of heartbeats count at each broker by itself."""

    async def scenario(world: World) -> None:
        await create(world)
        a, b = Worker(world, "a"), Worker(world, "b")
        await join_all(world, a, b)
        state = world.broker.groups.get(GROUP)
        before = dict(state.partition_owners)
        for number in (5, 3):
            answer = await a.client.ask(
                group_wire.CommandGroupHeartbeat(
                    group=GROUP,
                    member_id="a",
                    heartbeat_number=number,
                    held=[
                        group_wire.AssignedPartition(partition=one.to_wire(), generation=since)
                        for one, since in (a.held.items() if number == 5 else ())
                    ],
                )
            )
        assert len(answer.assigned) == len(a.held)
        assert state.partition_owners == before

    run(scenario, **FOUR)


def test_what_a_member_holds_elsewhere_is_no_concern_of_this_broker() -> None:
    async def scenario(world: World) -> None:
        await create(world)
        a = Worker(world, "a")
        await a.join(topics=[TOPIC])
        mine = dict(a.held)
        elsewhere = next(one for one in names(world) if one not in mine)
        a.held[elsewhere] = 9
        await a.beat()
        assert a.held == mine
        command = send(b"0", number=elsewhere.partition)
        command.partition.topic = TOPIC
        with pytest.raises(PartitionMoved):
            await world.client.ask(command)

    run(scenario, **FOUR)


def test_a_broker_without_a_partition_has_members_all_the_same() -> None:
    """So a topic that grows there later finds them, and each broker says who is in the group."""

    async def scenario(world: World) -> None:
        topic = await topic_without_partition_here(world)
        a = Worker(world, "a")
        await a.join(topics=[topic])
        assert a.held == {}
        await pass_time(world, SESSION_MS, a)
        described = await world.client.ask(group_wire.CommandDescribeGroup(group=GROUP))
        assert [one.member_id for one in described.members] == ["a"]
        await pass_time(world, SESSION_MS + 500)
        with pytest.raises(UnknownMember):
            await a.beat()

    run(scenario, **FOUR)


async def topic_without_partition_here(world: World) -> str:
    for number in range(20):
        name = f"narrow-{number}"
        await world.client.ask(topic_wire.CommandCreateTopic(topic=name, partitions=1))
        if not world.broker.topics.get(name).partitions:
            return name
    raise AssertionError("all topics begin at the first broker")
