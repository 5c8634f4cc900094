"""Client processes that share the partitions of a topic as members of a group."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.nodes import ClientNode
from tests.simulation.one_by_one import receive_some
from tests.simulation.sdk_programs import Unit, Writer, with_client

import magnetar
from magnetar_core.errors import (
    FencedInstance,
    IllegalGeneration,
    MagnetarError,
    TransactionConflict,
    UnknownMember,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP = "crew"
INPUT = "in"
OUTPUT = "out"
SESSION_TIMEOUT_S = 0.8
REBALANCE_TIMEOUT_S = 2.0


async def member(world: World, node: ClientNode) -> None:
    """Consumes, transforms, produces; comes and goes. Outputs keep the order of their inputs."""

    async def work(client: magnetar.Client, random: Random) -> None:
        writer = await Writer.make(world, node, client, OUTPUT, in_order=True)
        consumer = await client.consumer_group(
            GROUP,
            [INPUT],
            instance_id=instance_id_of(node),
            session_timeout_s=SESSION_TIMEOUT_S,
            rebalance_timeout_s=REBALANCE_TIMEOUT_S,
            max_poll_interval_s=random.choice((1.0, 300.0)),
            initial_position="earliest",
            receiver_queue_messages=random.choice((4, 16, 64)),
            nack_delay_ms=20,
            nack_delay_ms_max=100,
        )
        async with consumer:
            while not node.stopping:
                messages = await receive_some(consumer, random.choice((1, 2, 4, 16)), timeout_s=0.3)
                for message in messages:
                    world.saw(message)
                if messages:
                    await one_batch(world, node, client, consumer, writer, messages, random)
                if not world.hurry:
                    if random.random() < 0.02:
                        return  # It leaves, and another one comes.
                    if random.random() < 0.02:
                        # Longer than max_poll_interval_s: others take over.
                        await asyncio.sleep(1.5)

    async def fenced(client: magnetar.Client, random: Random) -> None:
        try:
            await work(client, random)
        except FencedInstance:
            world.provoked["p fenced"] += 1
            # The other one has the place; they do not throw each other out for ever.
            await asyncio.sleep(random.uniform(0.5, 3.0))
            if world.hurry:
                node.stopping = True

    await with_client(world, node, fenced)


def instance_id_of(node: ClientNode) -> str:
    """The first is dynamic, the second static; two share an instance id, by mistake."""
    number = int(node.name.rpartition("-")[2])
    return ("", node.name, "twins", "twins")[number % 4]


async def one_batch(
    world: World,
    node: ClientNode,
    client: magnetar.Client,
    consumer: magnetar.GroupConsumer,
    writer: Writer,
    messages: list[magnetar.Message],
    random: Random,
) -> None:
    """One transaction: an output for each input, on the partition of the same number."""
    history = world.history
    timeout_s = random.choice((1.0, 3.0))
    unit = Unit(world, await client.begin_transaction(timeout_s), node.name)
    fate = random.random() if not world.hurry else 0.0
    places: dict[int, list[int]] = {}
    for message in messages:
        places.setdefault(message.partition, []).append(message.offset)
    try:
        for message in messages:
            output = history.send(writer.name, OUTPUT, message.partition, unit.record)
            output.input = ((INPUT, message.partition, GROUP), message.offset)
            await unit.send_message(writer, output, wait=random.random() < 0.1)
        if fate > 0.95:
            # A zombie by the time it goes on, if others have taken over.
            await asyncio.sleep(random.uniform(0.0, 2.0))
        for partition, offsets in places.items():
            history.ack((INPUT, partition, GROUP), offsets, unit.record)
        asked_at = world.loop.time()
        await consumer.ack_many(messages, txn=unit.txn)
        for partition, offsets in places.items():
            cursor = (INPUT, partition, GROUP)
            history.ack_confirmed(cursor, offsets, unit.record, asked_at=asked_at)
    except MagnetarError as error:
        if isinstance(error, IllegalGeneration | UnknownMember):
            world.provoked["p refused"] += 1
        if isinstance(error, TransactionConflict):
            history.counts["conflicts"] += 1
        await unit.abort()
        consumer.redeliver()
        return
    if fate < 0.08 and not world.hurry:
        await unit.abort()
        consumer.redeliver()
    elif await unit.commit(random):
        history.counts["inputs of groups"] += len(messages)
    else:
        consumer.redeliver()
