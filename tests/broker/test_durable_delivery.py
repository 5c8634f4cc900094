"""Rule a for deliveries: nothing goes out before what it rests on is durable, on a disk that waits.

Source: docs/protocol/rules.md, rules a and q.
"""

from __future__ import annotations

import pytest
from tests.broker.harness import Client, World, ack, end, flow, nack, run, send, subscribe, txn

from magnetar_core import batch as columnar
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common

T1, T2 = txn(1), txn(2)
KINDS = [wire.EXCLUSIVE, wire.FAILOVER, wire.SHARED, wire.KEY_SHARED]
IN_ORDER = [wire.EXCLUSIVE, wire.FAILOVER]


async def eight_messages(world: World) -> None:
    """Offsets 0 to 7 in two batches, all of one key."""
    for first in (0, 4):
        values = [b"%d" % (first + place) for place in range(4)]
        command = send(*values, sequence=first)
        command.batch = columnar.encode(values, [b"key"] * 4)
        await world.client.ask(command)


async def consumer(world: World, kind: int, *, epoch: int = 1) -> Client:
    client = Client(world)
    client.begin(subscribe(consumer=1, kind=kind, epoch=epoch))
    client.tell(flow())
    await world.settle()
    return client


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", ["plain", "transactional"])
def test_what_is_acknowledged_before_an_abort_is_durable_does_not_come_again(
    kind: int, again: str
) -> None:
    """PIP-31: back to PENDING, and from there it goes on as any other message."""

    async def scenario(world: World) -> None:
        await eight_messages(world)
        client = await consumer(world, kind)
        assert client.offsets() == list(range(8))
        await client.ask(ack((1, 6), in_txn=T1))
        world.stall()
        client.begin(end(T1, common.ABORT, on="s"))
        await world.settle()
        assert len(client.offsets()) == 8, "the abort is not durable"
        client.begin(ack((2, 2), (5, 5), in_txn=T2 if again == "transactional" else None))
        await world.settle()
        await world.sync_once()
        assert client.offsets()[8:] == [1, 3, 4, 6]
        await world.go_on()
        assert client.offsets()[8:] == [1, 3, 4, 6]
        if again == "transactional":
            await client.ask(end(T2, common.ABORT, on="s"))
            assert client.offsets()[12:] == [2, 5]

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unread", [False, True])
def test_what_an_abort_brings_back_goes_out_when_that_is_durable(kind: int, unread: bool) -> None:
    """Also what nobody has read since the broker started, and so comes with what is new."""

    async def scenario(world: World) -> None:
        await eight_messages(world)
        await world.client.ask(subscribe())
        if unread:
            await world.client.ask(ack((1, 2), (5, 5), in_txn=T1))
            await world.restart()
        else:
            first = await consumer(world, kind)
            await first.ask(ack((1, 2), (5, 5), in_txn=T1))
            await first.close()
        world.stall()
        world.client.begin(end(T1, common.ABORT, on="s"))
        client = await consumer(world, kind, epoch=2)
        early = client.offsets()
        assert not {1, 2, 5} & set(early)
        await world.go_on()
        if kind == wire.SHARED:
            assert early == [0, 3, 4, 6, 7]
            assert client.offsets() == [*early, 1, 2, 5]
        else:
            # In order: what lies behind it waits for it. Of a key, all does.
            assert early == ([] if kind == wire.KEY_SHARED else [0])
            assert client.offsets() == list(range(8))

    run(scenario)


@pytest.mark.parametrize("kind", IN_ORDER)
def test_what_is_given_back_meanwhile_waits_for_its_turn(kind: int) -> None:
    async def scenario(world: World) -> None:
        await eight_messages(world)
        client = await consumer(world, kind)
        await client.ask(ack((0, 4), in_txn=T1))
        world.stall()
        client.begin(end(T1, common.ABORT, on="s"))
        client.tell(nack((5, 7)))
        await world.settle()
        assert client.offsets() == list(range(8))
        await world.go_on()
        assert client.offsets()[8:] == list(range(8))

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seek_delivers_when_it_is_durable(kind: int) -> None:
    async def scenario(world: World) -> None:
        await eight_messages(world)
        client = await consumer(world, kind)
        await client.ask(ack((0, 5)))
        world.stall()
        world.subscription().seek(2)
        client = await consumer(world, kind, epoch=2)
        assert client.offsets() == []
        await world.go_on()
        assert client.offsets() == list(range(2, 8))

    run(scenario)


def test_of_two_seeks_the_second_one_delivers() -> None:
    """The first is durable before the second: what it wanted is not what is wanted now."""

    async def scenario(world: World) -> None:
        await eight_messages(world)
        client = await consumer(world, wire.EXCLUSIVE)
        await client.ask(ack((0, 5)))
        world.stall()
        world.subscription().seek(0)
        await world.settle()
        world.subscription().seek(6)
        client = await consumer(world, wire.EXCLUSIVE, epoch=2)
        await world.sync_once()
        assert client.offsets() == []
        await world.go_on()
        assert client.offsets() == [6, 7]

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_goes_out_when_it_is_durable(kind: int) -> None:
    async def scenario(world: World) -> None:
        await eight_messages(world)
        client = await consumer(world, kind)
        world.stall()
        world.client.begin(send(b"8", sequence=8))
        await world.settle()
        assert client.offsets() == list(range(8))
        await world.go_on()
        assert client.offsets() == list(range(9))

    run(scenario)


@pytest.mark.parametrize("kind", [wire.EXCLUSIVE, wire.SHARED])
def test_a_message_in_parts_is_completed_while_something_before_it_is_withheld(kind: int) -> None:
    async def scenario(world: World) -> None:
        await eight_messages(world)
        parts = columnar.split(columnar.encode([bytes(300)], [b"key"]), 100)
        for number, part in enumerate(parts):
            command = send(b"", in_txn=T2, sequence=number)
            command.batch = part
            await world.client.ask(command)
        await world.client.ask(end(T2))
        client = Client(world)
        await client.ask(subscribe(consumer=1, kind=kind))
        client.tell(flow(9))
        await world.settle()
        await client.ask(ack((3, 3), in_txn=T1))
        world.stall()
        client.begin(end(T1, common.ABORT, on="s"))
        client.tell(flow())
        await world.settle()
        rest = list(range(9, 8 + len(parts)))
        assert client.parts() == [0, 4, 8, *rest]
        await world.go_on()
        assert client.parts() == [0, 4, 8, *rest, 0]

    run(scenario)
