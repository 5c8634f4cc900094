"""Rules a, b and invariants 2, 4, 7: whatever is cut off, repeats get the same answers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.broker.harness import Client, World, ack, end, flow, run, send, subscribe, txn, watermark

from magnetar_core.errors import MagnetarError
from magnetar_core.wire import common_pb2 as common

T1, T2, T3, T4 = txn(1), txn(2), txn(3), txn(4)

# A conversation in which every kind of row is written. The order matters; each may be repeated.
STEPS: list[Any] = [
    subscribe(),
    send(b"p0", b"p1"),
    send(b"a0", in_txn=T1),
    send(b"a1", b"a2", in_txn=T1, sequence=1),
    send(b"b0", in_txn=T2, producer=2),
    ack((0, 0), in_txn=T3),
    ack((1, 1), in_txn=T4),
    end(T1, counts={1: 2}),
    send(b"p2", sequence=2, follows=T1),
    end(T2, common.ABORT),
    end(T3, on="s", counts={1: 1}),
    end(T4, common.ABORT, on="s"),
    ack((2, 2)),
    end(txn(5), counts={}),
    watermark(4),
    ack((3, 4)),
    watermark(9),
]
VALUES = [b"p0", b"p1", b"a0", b"a1", b"p2"]


def told(answer: Any) -> Any:
    """What a client may rely on: a repeat is marked as one."""
    if answer.DESCRIPTOR.name == "CommandSendResponse":
        return answer.message_id
    return answer


async def final_state(world: World) -> Any:
    client = Client(world)
    await client.ask(subscribe(consumer=1))
    client.tell(flow())
    await world.settle()
    cursor = world.subscription().cursor
    return (
        await world.read(),
        client.messages(),
        cursor.floor,
        list(cursor.deleted.ranges()),
        sorted(world.partition().index.ended),
        sorted(world.subscription().index.ended),
    )


EXPECTED: Any = (VALUES, [(1, b"p1")], 1, [(2, 4)], [], [])


def test_the_conversation_without_an_accident() -> None:
    async def scenario(world: World) -> None:
        for step in STEPS:
            await world.client.ask(step)
        assert await final_state(world) == EXPECTED

    run(scenario)


@pytest.mark.parametrize("cut", range(len(STEPS)))
def test_a_kill_after_any_answer(cut: int) -> None:
    """The step is repeated after the restart and gets the same answer; the rest goes on."""

    async def scenario(world: World) -> None:
        for number, step in enumerate(STEPS):
            answer = await world.client.ask(step)
            if number == cut:
                await world.restart()
                again = await world.client.ask(step)
                assert told(again) == told(answer)
        assert await final_state(world) == EXPECTED
        await world.restart()
        assert await final_state(world) == EXPECTED

    run(scenario)


@pytest.mark.parametrize("cut", range(len(STEPS)))
@pytest.mark.parametrize("written", [False, True])
def test_a_power_loss_before_any_answer(cut: int, written: bool) -> None:
    """Nothing was answered, so the client repeats; the group may be lost or not."""

    async def scenario(world: World) -> None:
        for number, step in enumerate(STEPS):
            if number == cut:
                if written:
                    world.disk.fail_next_sync()
                else:
                    world.disk.fail_next_write()
                pending = world.client.begin(step)
                await world.settle()
                if pending.done():
                    pending.result()  # It wrote nothing.
                else:
                    assert len(world.fatal) == 1
                await world.restart(Random(cut))
                world.fatal.clear()
                world.disk._fail_next_sync = world.disk._fail_next_write = False
            await world.client.ask(step)
        assert await final_state(world) == EXPECTED

    run(scenario)


def test_a_repeat_waits_for_what_it_repeats() -> None:
    """Rule a: a duplicate's answer, too, leaves when the first is durable."""

    async def scenario(world: World) -> None:
        release = asyncio.Event()

        async def stall(_: float) -> None:
            await release.wait()

        world.disk._sleep = stall
        world.disk.sync_seconds = 1.0
        first = world.client.begin(send(b"a"))
        await world.settle()
        again = world.client.begin(send(b"a"))
        gap = world.client.begin(send(b"c", sequence=5))
        await world.settle()
        assert not first.done()
        assert not again.done()
        assert not gap.done(), "a refusal depends on what it was held against"
        assert world.partition().log.durable_end == 0
        release.set()
        await world.settle()
        assert first.result().message_id == again.result().message_id
        assert again.result().duplicate
        assert isinstance(gap.exception(), MagnetarError)

    run(scenario)


def test_dispatch_reads_below_the_durable_end() -> None:
    async def scenario(world: World) -> None:
        release = asyncio.Event()

        async def stall(_: float) -> None:
            await release.wait()

        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        world.disk._sleep = stall
        world.disk.sync_seconds = 1.0
        world.client.begin(send(b"a"))
        await world.settle()
        assert world.client.values() == []
        release.set()
        await world.settle()
        assert world.client.values() == [b"a"]

    run(scenario)


def test_a_failed_store_is_told_once_and_nothing_is_answered() -> None:
    """Rule b: a failed write or sync ends the process at once."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        await world.client.ask(send(b"a"))
        world.disk.fail_next_sync()
        pending = [world.client.begin(send(b"b", sequence=1))]
        await world.settle()
        world.partition().log._tail_start = len(world.partition().log._tail)
        world.client.tell(flow())
        await world.settle()
        assert not any(one.done() for one in pending)
        assert len(world.fatal) == 1
        world.fatal.clear()
        await world.restart()
        assert await world.read() in ([b"a"], [b"a", b"b"])

    run(scenario)
