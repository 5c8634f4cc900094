"""Groups at a broker: fencing, waiting for earlier generations, restarts, bad input."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    flow,
    run,
    send,
    subscribe,
    subscription,
    txn,
    watermark,
)

from magnetar_core.errors import (
    FencedInstance,
    GroupNotFound,
    IllegalGeneration,
    InvalidArgument,
    QuotaExceeded,
    ResourceInUse,
    SubscriptionExists,
    TopicNotFound,
    UnknownMember,
)
from magnetar_core.ids import MemberName, PartitionName, TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire

SESSION_MS = 10_000
GROUP = "s"


def join(member: str, *, instance: str = "", **fields: Any) -> group_wire.CommandJoinGroup:
    if "topics" not in fields and "topic_pattern" not in fields:
        fields["topics"] = ["t"]
    return group_wire.CommandJoinGroup(
        group=GROUP,
        member_id=member,
        instance_id=instance,
        initial_position=wire.EARLIEST,
        **fields,
    )


class Worker:
    """A member with a conversation of its own, which obeys unless it is told otherwise."""

    def __init__(self, world: World, member: str, instance: str = "") -> None:
        self.world = world
        self.member, self.instance = member, instance
        self.client = Client(world)
        self.held: dict[PartitionName, int] = {}
        self.consumer = sum(member.encode())
        self.epoch = 0

    async def join(self, **fields: Any) -> None:
        answer = await self.client.ask(join(self.member, instance=self.instance, **fields))
        self._obey(answer.state)

    async def beat(self, *, obey: bool = True) -> group_wire.CommandGroupHeartbeatResponse:
        held = [
            group_wire.AssignedPartition(partition=one.to_wire(), generation=generation)
            for one, generation in self.held.items()
        ]
        answer: group_wire.CommandGroupHeartbeatResponse = await self.client.ask(
            group_wire.CommandGroupHeartbeat(
                group=GROUP, member_id=self.member, instance_id=self.instance, held=held
            )
        )
        if obey:
            self._obey(answer)
        return answer

    async def beat_twice(self) -> None:
        """Hear what is asked back, and say that it is released."""
        await self.beat()
        await self.beat()

    async def attach(self, number: int = 0) -> wire.CommandSubscribeResponse:
        self.epoch += 1
        command = subscribe(GROUP, consumer=self.consumer, epoch=self.epoch, number=number)
        command.member.CopyFrom(self.name(number).to_wire())
        answer: wire.CommandSubscribeResponse = await self.client.ask(command)
        permits = flow(consumer=self.consumer, name=GROUP)
        permits.subscription.partition = number
        self.client.tell(permits)
        await self.world.settle()
        return answer

    async def ack(self, *ranges: tuple[int, int], number: int = 0, **fields: Any) -> None:
        two_phase_commit = fields.pop("two_phase_commit", False)
        generation = fields.pop("generation", None)
        command = ack(*ranges, consumer=self.consumer, name=GROUP, **fields)
        command.subscription.partition = number
        name = self.name(number)
        if generation is not None:
            name = name._replace(generation=generation)
        command.member.CopyFrom(name.to_wire())
        command.two_phase_commit = two_phase_commit
        await self.client.ask(command)

    def name(self, number: int = 0) -> MemberName:
        generation = next((g for one, g in self.held.items() if one.partition == number), 0)
        return MemberName(self.member, self.instance, generation)

    def numbers(self) -> list[int]:
        return sorted(one.partition for one in self.held)

    def _obey(self, state: group_wire.CommandGroupHeartbeatResponse) -> None:
        self.held = {
            PartitionName.from_wire(one.partition): one.generation for one in state.assigned
        }


async def pass_time(world: World, milliseconds: int, *beating: Worker) -> None:
    """In steps, as real time passes; members that beat are not expelled."""
    for _ in range(0, milliseconds, 500):
        world.clock.advance(500)
        for worker in beating:
            await worker.beat()
        world.broker.groups.sweep()
        await world.settle()
    for worker in beating:
        await worker.beat()


async def two_workers(world: World) -> tuple[Worker, Worker]:
    """`a` has partition 0 since generation 1, `b` has partition 1 since generation 2."""
    a, b = Worker(world, "a"), Worker(world, "b")
    await a.join()
    await b.join()
    await a.beat_twice()
    await b.beat()
    assert (a.numbers(), b.numbers()) == ([0], [1])
    return a, b


def test_members_are_told_when_something_changes_for_them() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        assert a.numbers() == [0, 1]
        await b.join()
        assert a.client.pushed == [group_wire.CommandGroupChange(group=GROUP, member_id="a")]
        state = await b.beat()
        assert (b.numbers(), state.coming) == ([], 1)
        await a.beat_twice()
        assert group_wire.CommandGroupChange(group=GROUP, member_id="b") in b.client.pushed
        await b.beat()
        assert (a.numbers(), b.numbers()) == ([0], [1])

    run(scenario)


def test_only_the_owner_acknowledges() -> None:
    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        await world.client.ask(send(b"0", b"1"))
        await a.ack((0, 0))
        with pytest.raises(IllegalGeneration):
            await b.ack((1, 1))
        with pytest.raises(IllegalGeneration):
            await b.ack((1, 1), in_txn=txn(1))
        with pytest.raises(IllegalGeneration):
            await a.ack((1, 1), generation=0)
        with pytest.raises(UnknownMember):
            await Worker(world, "z").ack((1, 1))
        with pytest.raises(UnknownMember):
            await world.client.ask(ack((1, 1), name=GROUP))
        assert world.subscription(GROUP).cursor.floor == 1

    run(scenario)


def test_only_the_owner_receives() -> None:
    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        await world.client.ask(send(b"0"))
        with pytest.raises(IllegalGeneration):
            await b.attach(0)
        with pytest.raises(UnknownMember):
            await world.client.ask(subscribe(GROUP, consumer=1))
        command = subscribe("plain", consumer=1)
        command.member.CopyFrom(a.name().to_wire())
        with pytest.raises(UnknownMember):
            await world.client.ask(command)
        await a.attach(0)
        assert a.client.values() == [b"0"]

    run(scenario)


def test_who_loses_a_partition_is_cut_off_from_it_and_what_it_held_goes_on() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await world.client.ask(send(b"0", number=1))
        await a.attach(0)
        await a.attach(1)
        await b.join()
        a.client.pushed.clear()
        await a.beat_twice()
        closed = a.client.changes
        assert [(one.partition, one.error.code) for one in closed] == [
            (1, common.ILLEGAL_GENERATION)
        ]
        await b.beat()
        await b.attach(1)
        assert b.client.values() == [b"0"]

    run(scenario)


def test_a_member_that_keeps_a_partition_through_a_rebalance_notices_nothing_there() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await a.attach(0)
        await world.client.ask(send(b"0"))
        await a.ack((0, 0), in_txn=txn(1))
        await b.join()
        await a.beat_twice()
        await b.beat()
        await world.client.ask(send(b"1", sequence=1))
        await world.settle()
        assert a.client.values() == [b"0", b"1"]
        await a.ack((1, 1), in_txn=txn(1), sequence=1)
        assert world.subscription(GROUP).awaited() == []

    run(scenario)


def test_a_new_owner_waits_for_transactions_of_earlier_generations() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await world.client.ask(send(b"0", b"1", number=1))
        await a.attach(1)
        await a.ack((0, 0), number=1, in_txn=txn(1))
        await b.join()
        await a.beat_twice()
        await b.beat()
        answer = await b.attach(1)
        assert answer.waiting
        assert b.client.values() == [], "b must not go on before a's transaction has ended"
        ended = end(txn(1), common.ABORT, on=GROUP)
        ended.subscription.partition = 1
        await world.client.ask(ended)
        assert b.client.values() == [b"0", b"1"]
        told = b.client.changes
        assert [one.waiting for one in told] == [False]

    run(scenario)


def test_a_commit_of_an_earlier_generation_still_counts() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await world.client.ask(send(b"0", b"1", number=1))
        await a.attach(1)
        await a.ack((0, 0), number=1, in_txn=txn(1))
        await b.join()
        await a.beat_twice()
        await b.beat()
        await b.attach(1)
        ended = end(txn(1), counts={a.consumer: 1}, on=GROUP)
        ended.subscription.partition = 1
        await world.client.ask(ended)
        assert b.client.values() == [b"1"]

    run(scenario)


def told_to_abort(coordinator: Client) -> list[TxnID]:
    return [
        TxnID.from_wire(one)
        for change in coordinator.pushed
        if isinstance(change, txn_wire.CommandAbortExpelled)
        for one in change.txn_ids
    ]


def test_what_an_expelled_member_left_open_is_aborted_through_its_coordinator() -> None:
    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        coordinator = Client(world)
        await coordinator.ask(watermark(1))
        await world.client.ask(send(b"0"))
        await a.attach(0)
        await a.ack((0, 0), in_txn=txn(7))
        await pass_time(world, SESSION_MS - 500, b)
        assert told_to_abort(coordinator) == []
        await pass_time(world, 500, b)
        assert told_to_abort(coordinator) == [txn(7)]
        await b.beat()
        assert b.numbers() == [0, 1]
        assert (await b.attach(0)).waiting
        await pass_time(world, 1_000, b)
        assert told_to_abort(coordinator) == [txn(7)] * 2, "it is asked until it has ended"
        with pytest.raises(UnknownMember):
            await a.ack((0, 0), in_txn=txn(7), sequence=1)
        await coordinator.ask(end(txn(7), common.ABORT, on=GROUP))
        assert b.client.values() == [b"0"]
        await pass_time(world, 2_000, b)
        assert len(told_to_abort(coordinator)) == 2

    run(scenario)


def test_what_departed_members_left_is_asked_for_after_a_restart() -> None:
    """Whoever is waiting for it would wait until it expires."""

    async def scenario(world: World) -> None:
        a, b = await two_workers(world)
        await world.client.ask(send(b"0"))
        await a.attach(0)
        await a.ack((0, 0), in_txn=txn(7))
        # Its coordinator is away when the member is expelled.
        await pass_time(world, SESSION_MS, b)
        assert b.numbers() == [0, 1]
        await world.restart()
        b.client = Client(world)
        await b.beat()
        assert (await b.attach(0)).waiting
        coordinator = Client(world)
        await coordinator.ask(watermark(1))
        await pass_time(world, 1_500, b)
        assert txn(7) in told_to_abort(coordinator)
        await coordinator.ask(end(txn(7), common.ABORT, on=GROUP))
        assert b.client.values() == [b"0"]

    run(scenario)


def test_a_new_owner_waits_until_an_abort_is_durable() -> None:
    """What it brings back lies before what was not read yet; until then it is told to wait."""

    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await world.client.ask(send(b"0", b"1", number=1))
        await a.attach(1)
        await a.ack((0, 0), number=1, in_txn=txn(1))
        await b.join()
        await a.beat_twice()
        await b.beat()
        world.stall()
        ended = end(txn(1), common.ABORT, on=GROUP)
        ended.subscription.partition = 1
        world.client.begin(ended)
        attaching = subscribe(GROUP, consumer=b.consumer, number=1)
        attaching.member.CopyFrom(b.name(1).to_wire())
        answer = b.client.begin(attaching)
        permits = flow(consumer=b.consumer, name=GROUP)
        permits.subscription.partition = 1
        b.client.tell(permits)
        await world.settle()
        assert b.client.values() == []
        await world.go_on()
        assert answer.result().waiting
        assert b.client.values() == [b"0", b"1"]
        told = b.client.changes
        assert [one.waiting for one in told] == [False]

    run(scenario)


def test_a_restarted_instance_keeps_its_partitions_and_fences_its_former_self() -> None:
    async def scenario(world: World) -> None:
        old = Worker(world, "a1", "worker-a")
        await old.join()
        await world.client.ask(send(b"0", b"1"))
        await old.attach(0)
        await old.ack((0, 0), in_txn=txn(1))
        new = Worker(world, "a2", "worker-a")
        coordinator = Client(world)
        await coordinator.ask(watermark(1))
        await new.join()
        assert new.numbers() == [0, 1]
        with pytest.raises(FencedInstance):
            await old.ack((1, 1))
        with pytest.raises(FencedInstance):
            await old.beat()
        assert told_to_abort(coordinator) == [txn(1)]
        assert (await new.attach(0)).waiting

    run(scenario)


def test_state_survives_a_restart() -> None:
    async def scenario(world: World) -> None:
        a, b = Worker(world, "a"), Worker(world, "b")
        await a.join()
        await world.client.ask(send(b"0", number=1))
        await a.attach(1)
        await a.ack((0, 0), number=1, in_txn=txn(1))
        await b.join()
        await a.beat_twice()
        await b.beat()
        before = [(one.name, one.generation, one.owners) for one in world.broker.groups.all()]
        await world.restart()
        after = [(one.name, one.generation, one.owners) for one in world.broker.groups.all()]
        assert before == after
        a.client, b.client = Client(world), Client(world)
        await a.beat()
        await b.beat()
        assert (a.numbers(), b.numbers()) == ([0], [1])
        assert (await b.attach(1)).waiting, "the open transaction is of an earlier generation"
        with pytest.raises(IllegalGeneration):
            await a.ack((0, 0), number=1, in_txn=txn(1), sequence=1, generation=1)
        # Session timeouts start anew: nobody could be heard meanwhile.
        await pass_time(world, SESSION_MS, b)
        assert b.numbers() == [0, 1]

    run(scenario)


def test_a_broker_that_stood_still_expels_nobody() -> None:
    async def scenario(world: World) -> None:
        a, _ = await two_workers(world)
        world.clock.advance(60_000)
        world.broker.groups.sweep()
        await a.beat()
        assert a.numbers() == [0]

    run(scenario)


def test_a_static_member_that_comes_back_late_is_a_new_one() -> None:
    async def scenario(world: World) -> None:
        old = Worker(world, "a1", "worker-a")
        other = Worker(world, "b1", "worker-b")
        await old.join()
        await other.join()
        await old.beat_twice()
        await pass_time(world, SESSION_MS, other)
        assert other.numbers() == [0, 1]
        new = Worker(world, "a2", "worker-a")
        await new.join()
        assert new.numbers() == []
        await other.beat_twice()
        await new.beat()
        assert len(new.numbers()) == 1

    run(scenario)


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
        with pytest.raises(InvalidArgument, match="wants topics"):
            await ask(join("a", topics=[]))
        with pytest.raises(InvalidArgument, match="names itself"):
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
        assert [(one.group, one.generation) for one in listed.groups] == [(GROUP, 3)]

    run(scenario)


def test_recovery_after_a_power_failure_keeps_what_members_were_told() -> None:
    """(Owner, generation) is durable before the member hears of it."""

    async def scenario(world: World) -> None:
        for seed in range(10):
            member = Worker(world, f"m{seed}")
            await member.join()
            for other in world.broker.groups.all()[0].members:
                if other != member.member:
                    worker = Worker(world, other)
                    await worker.beat_twice()
            await member.beat()
            told = dict(member.held)
            await world.restart(losing=Random(seed))
            group = world.broker.groups.get(GROUP)
            for one, generation in told.items():
                assert group.owners[one] == (member.member, generation)

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
