"""Groups as people make, see, limit and delete them."""

from __future__ import annotations

import pytest
from tests.broker.group_workers import GROUP, SESSION_MS, Worker, join, pass_time, two_workers
from tests.broker.harness import (
    World,
    end,
    run,
    send,
    subscribe,
    subscription,
    txn,
)

from magnetar_core.errors import (
    GroupNotFound,
    InvalidArgument,
    QuotaExceeded,
    ResourceInUse,
    SubscriptionExists,
    TopicNotFound,
    UnknownMember,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire


def test_two_phase_commit_needs_the_groups_consent() -> None:
    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join()
        await world.client.ask(send(b"0"))
        with pytest.raises(InvalidArgument, match="allow_two_phase_commit"):
            await a.ack((0, 0), in_txn=txn(1), two_phase_commit=True)
        await a.client.ask(
            group_wire.CommandLeaveGroup(group=GROUP, member_id="a"),
        )
        await a.join(allow_two_phase_commit=True)
        await a.ack((0, 0), in_txn=txn(1), two_phase_commit=True)
        with pytest.raises(InvalidArgument, match="all of them say the same"):
            await Worker(world, "b").join()

    run(scenario)


def test_patterns_find_topics_that_come_later() -> None:
    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join(topic_pattern="order-*")
        assert a.held == {}, "a pattern that matches nothing is no error"
        await world.client.ask(topic_wire.CommandCreateTopic(topic="order-x", partitions=2))
        await a.beat()
        assert {(one.topic, one.partition) for one in a.held} == {("order-x", 0), ("order-x", 1)}
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="order-x"))
        await a.beat()
        assert a.held == {}

    run(scenario)


def test_a_group_without_members_keeps_its_cursors_and_anybody_may_move_them() -> None:
    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join()
        await world.client.ask(send(b"0", b"1"))
        await a.ack((0, 0))
        seek = wire.CommandSeek(subscription=subscription(GROUP), offset=0)
        with pytest.raises(UnknownMember):
            await world.client.ask(seek)
        await a.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a"))
        assert world.subscription(GROUP).cursor.floor == 1
        await world.client.ask(seek)
        b = Worker(world, "b")
        await b.join()
        await b.attach(0)
        assert b.client.values() == [b"0", b"1"]

    run(scenario)


def test_a_live_group_is_not_deleted() -> None:
    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join()
        delete = group_wire.CommandDeleteGroup(group=GROUP)
        with pytest.raises(ResourceInUse, match="1 members"):
            await world.client.ask(delete)
        with pytest.raises(ResourceInUse):
            await world.client.ask(wire.CommandUnsubscribe(subscription=subscription(GROUP)))
        await a.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a"))
        await world.client.ask(delete)
        assert world.partition().subscriptions.find(GROUP) is None
        assert await world.rows("groups") == []
        with pytest.raises(GroupNotFound):
            await world.client.ask(delete)
        await world.restart()
        assert world.broker.groups.all() == []

    run(scenario)


def test_bad_input() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        with pytest.raises(TopicNotFound):
            await ask(join("a", topics=["nothing"]))
        with pytest.raises(InvalidArgument, match="must name topics"):
            await ask(join("a", topics=[]))
        with pytest.raises(InvalidArgument, match="member_id is missing"):
            await ask(join(""))
        with pytest.raises(InvalidArgument, match="session_timeout_ms"):
            await ask(join("a", session_timeout_ms=10))
        with pytest.raises(InvalidArgument, match="rebalance_timeout_ms"):
            await ask(join("a", rebalance_timeout_ms=1 << 40))
        with pytest.raises(InvalidArgument, match="printable"):
            await ask(join("a\n"))
        with pytest.raises(InvalidArgument, match="name of a group"):
            await ask(group_wire.CommandJoinGroup(group="", member_id="a", topics=["t"]))
        with pytest.raises(GroupNotFound):
            await ask(group_wire.CommandGroupHeartbeat(group="nobody", member_id="a"))
        with pytest.raises(GroupNotFound):
            await ask(group_wire.CommandDescribeGroup(group="nobody"))
        await ask(subscribe(GROUP, consumer=1))
        with pytest.raises(SubscriptionExists):
            await ask(join("a"))
        assert world.broker.groups.all() == []

    run(scenario)


def test_limits() -> None:
    async def scenario(world: World) -> None:
        await Worker(world, "a").join()
        await Worker(world, "b").join()
        with pytest.raises(QuotaExceeded, match="its 2 members"):
            await Worker(world, "c").join()
        with pytest.raises(QuotaExceeded, match="its 1 groups"):
            await world.client.ask(
                group_wire.CommandJoinGroup(group="other", member_id="a", topics=["t"])
            )

    run(scenario, group_members_max=2, groups_max=1)


def test_what_people_are_shown() -> None:
    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        await world.client.ask(send(b"0", b"1"))
        await a.ack((0, 0), in_txn=txn(1))
        world.clock.advance(1_000)
        shown = await world.client.ask(group_wire.CommandDescribeGroup(group=GROUP))
        assert shown.summary.state == group_wire.GROUP_STABLE
        assert (shown.summary.members, shown.summary.partitions, shown.summary.lag) == (2, 2, 2)
        assert [(one.member_id, one.lag, one.silent_ms) for one in shown.members] == [
            ("a", 2, 1_000),
            ("b", 0, 1_000),
        ]
        first = shown.partitions[0]
        assert (first.member_id, first.generation, first.pending_ack_count) == ("a", 1, 1)
        # The old owner is gone, the new one waits.
        await b.beat()
        await a.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a"))
        shown = await world.client.ask(group_wire.CommandDescribeGroup(group=GROUP))
        assert [TxnID.from_wire(one) for one in shown.partitions[0].awaited_txns] == [txn(1)]
        listed = await world.client.ask(group_wire.CommandListGroups())
        assert [(group.group, group.generation) for group in listed.groups] == [(GROUP, 3)]

    run(scenario)


def test_metrics() -> None:
    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        await world.client.ask(send(b"0", b"1"))
        await a.ack((0, 0), in_txn=txn(1))
        await b.beat()
        await pass_time(world, SESSION_MS, b)
        world.broker._show()

        def read(name: str, **labels: str) -> float | None:
            registry = world.broker.metrics.registry
            return registry.get_sample_value(f"magnetar_broker_{name}", labels)

        assert read("groups") == 1
        assert read("group_members") == 1
        assert read("group_members_expelled_total") == 1
        assert read("group_rebalances_total") == 3
        assert read("group_waiting_partitions") == 1
        assert read("group_lag", group=GROUP, topic="t", partition="0") == 2
        # The others are left out, and the greatest lag is not.
        assert read("group_lag", group=GROUP, topic="t", partition="1") is None
        await b.client.ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="b"))
        await world.client.ask(end(txn(1), common.ABORT, on=GROUP))
        await world.client.ask(group_wire.CommandDeleteGroup(group=GROUP))
        world.broker._show()
        assert read("groups") == 0
        assert read("group_lag", group=GROUP, topic="t", partition="0") is None

    run(scenario, group_lag_gauges_max=1)
