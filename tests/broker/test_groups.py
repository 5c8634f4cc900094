"""Groups at a broker: fencing, waiting for earlier generations, restarts, bad input."""

from __future__ import annotations

from random import Random

import pytest
from tests.broker.group_workers import GROUP, SESSION_MS, Worker, pass_time, two_workers
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
    IllegalGeneration,
    UnknownMember,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import transaction_pb2 as txn_wire


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


def test_an_owners_next_consumer_waits_for_what_the_one_before_waited_for() -> None:
    """It gave the partition up and got it back in the same generation: long seed 11."""

    async def scenario(world: World) -> None:
        a = Worker(world, "a")
        await a.join()
        await world.client.ask(send(b"0", b"1"))
        await a.attach(0)
        await a.ack((0, 0), in_txn=txn(1))
        # Its coordinator says that it is aborted, and will tell the broker later.
        assert (await a.attach(0, after=[txn(1)])).waiting
        await a.client.ask(
            wire.CommandCloseConsumer(subscription=subscription(GROUP), consumer_id=a.consumer)
        )
        a.consumer += 1
        a.client.delivered.clear()
        assert (await a.attach(0)).waiting
        assert a.client.values() == [], "what the transaction gives back comes first"
        await world.client.ask(end(txn(1), common.ABORT, on=GROUP))
        assert a.client.values() == [b"0", b"1"]

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
        before = [
            (one.name, one.generation, one.partition_owners) for one in world.broker.groups.all()
        ]
        await world.restart()
        after = [
            (one.name, one.generation, one.partition_owners) for one in world.broker.groups.all()
        ]
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
                assert group.partition_owners[one] == (member.member, generation)

    run(scenario)
