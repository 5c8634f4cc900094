"""Administration of groups at several brokers: all of them are asked, and the answers merged."""

from __future__ import annotations

import dataclasses

import pytest
from tests.client.fakes import FAST
from tests.client.groups_of_brokers import GroupBrokers, run_groups
from tests.client.several_brokers import FIRST, SECOND, THIRD

from magnetar import Client, GroupConsumer
from magnetar.admin.group_descriptions import (
    GroupDescription,
    GroupMember,
    GroupPartition,
    GroupState,
    GroupSummary,
)
from magnetar.admin.merged_groups import merge_descriptions, merge_lists
from magnetar_core.errors import GroupNotFound, LogUnavailable, ResourceInUse

GROUP = "g"
HASTY = dataclasses.replace(FAST, operation_timeout_ms=300, connect_timeout_ms=100)


async def worker(cluster: GroupBrokers, client: Client) -> GroupConsumer:
    """A member of a group of three partitions, one at each broker."""
    cluster.topic("orders", 3)
    return await client.consumer_group(GROUP, "orders", initial_position="earliest")


def test_list_and_describe_put_together_what_the_brokers_say() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        consumer = await worker(cluster, client)
        cluster.at(SECOND).take_away(GROUP, ("orders", 1))
        (summary,) = await client.admin.groups.list()
        assert summary == GroupSummary(GROUP, GroupState.STABLE, 2, 1, 3, 0)
        found = await client.admin.groups.describe(GROUP)
        assert found.summary == summary
        assert [(one.member_id, one.partitions) for one in found.members] == [
            (consumer.member_id, 3)
        ]
        assert [(one.partition, one.generation) for one in found.partitions] == [
            (0, 1),
            (1, 2),
            (2, 1),
        ]
        with pytest.raises(GroupNotFound):
            await client.admin.groups.describe("nobody")

    run_groups(test)


def test_a_broker_that_is_away_is_named() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        await (await worker(cluster, client)).close()
        cluster.net.dead.add(SECOND)
        for link in [one for one in cluster.net.links if one.address == SECOND]:
            link.break_now()
        groups = client.admin.groups
        for call in (groups.list, lambda: groups.describe(GROUP), lambda: groups.delete(GROUP)):
            with pytest.raises(LogUnavailable, match=f"broker b-1 at {SECOND} does not answer"):
                await call()
        assert not cluster.asked("delete_group"), "nothing was deleted"

    run_groups(test, HASTY)


def test_nothing_is_deleted_while_any_broker_has_members() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        consumer = await worker(cluster, client)
        for address in (FIRST, SECOND):
            del cluster.at(address).groups[GROUP].members[consumer.member_id]
        cluster.play.when("join_group").always(ResourceInUse())
        with pytest.raises(ResourceInUse, match="has 1 members"):
            await client.admin.groups.delete(GROUP)
        assert not cluster.asked("delete_group")
        cluster.play.forget()

    run_groups(test)


def test_a_deletion_that_was_half_done_is_finished_by_a_repeat() -> None:
    async def test(cluster: GroupBrokers, client: Client) -> None:
        await (await worker(cluster, client)).close()
        # A member comes between the question and the deletion, at the last broker.
        cluster.play.when("delete_group").always(
            lambda _: ResourceInUse() if cluster.play.asked[-1][0] == THIRD else None
        )
        with pytest.raises(ResourceInUse):
            await client.admin.groups.delete(GROUP)
        cluster.play.forget()
        assert [broker for broker in cluster.brokers if cluster.at(broker).groups] == [THIRD]
        assert len(await client.admin.groups.list()) == 1
        await client.admin.groups.delete(GROUP)
        assert await client.admin.groups.list() == []
        with pytest.raises(GroupNotFound):
            await client.admin.groups.delete(GROUP)

    run_groups(test)


def summary(name: str, state: GroupState, *numbers: int) -> GroupSummary:
    return GroupSummary(name, state, *numbers)


def member(name: str, silent_ms: int, partitions: int, lag: int) -> GroupMember:
    return GroupMember(name, "", "", ("t",), "", 10_000, 60_000, silent_ms, partitions, lag)


def partition(number: int, pending: int = 0) -> GroupPartition:
    return GroupPartition("t", number, "a", 1, "", 0, 9, 9, pending, ())


def test_groups_that_some_brokers_have_are_listed_once() -> None:
    empty, stable, moving = GroupState.EMPTY, GroupState.STABLE, GroupState.REBALANCING
    merged = merge_lists(
        [
            [summary("b", empty, 3, 0, 2, 5), summary("c", stable, 1, 2, 1, 1)],
            [summary("a", empty, 1, 0, 1, 0), summary("b", empty, 2, 0, 1, 7)],
            [summary("c", moving, 4, 1, 2, 0)],
        ]
    )
    assert merged == [
        summary("a", empty, 1, 0, 1, 0),
        summary("b", empty, 3, 0, 3, 12),
        summary("c", moving, 4, 2, 3, 1),
    ]


def test_members_and_partitions_are_merged() -> None:
    one = GroupDescription(
        summary("g", GroupState.STABLE, 5, 2, 1, 9),
        True,
        (member("a", 10, 1, 9), member("b", 20, 0, 0)),
        (partition(2),),
    )
    # `b` was expelled here.
    other = GroupDescription(
        summary("g", GroupState.STABLE, 7, 1, 2, 18),
        True,
        (member("a", 900, 2, 18),),
        (partition(0), partition(3)),
    )
    # Nobody has joined since this broker got a topic.
    idle = GroupDescription(summary("g", GroupState.EMPTY, 1, 0, 0, 0), False, (), ())
    for order in ([idle, one, other], [other, idle, one]):
        merged = merge_descriptions(order)
        assert merged.summary == summary("g", GroupState.STABLE, 7, 2, 3, 27)
        assert merged.allow_two_phase_commit
        assert {each.member_id: each for each in merged.members} == {
            "a": member("a", 900, 3, 27),
            "b": member("b", 20, 0, 0),
        }
        assert [each.partition for each in merged.partitions] == [0, 2, 3]
