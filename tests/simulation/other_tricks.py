"""Deletion, first sequences, retention and old incarnations, by hand."""

from __future__ import annotations

import asyncio
import zlib
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.raw import BROKER, NoAnswer, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit, ask_status

from magnetar_core.errors import (
    Gone,
    InvalidTxnState,
    MagnetarError,
    OutOfRange,
    ResourceInUse,
    SequenceGap,
    TopicNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, topic_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World


async def deletion(world: World, unit: RawUnit, random: Random) -> None:
    """Rule j: what open transactions hold cannot be deleted; what is gone counts as done."""
    world.temporary_count += 1
    topic = f"temporary-{world.temporary_count}"
    client = unit.client
    await client.create_topic(topic, 1)
    await unit.begin(3_000)
    producer_id = random.getrandbits(63)
    try:
        await unit.send(producer_id, topic, 0)
    except InvalidTxnState:
        return
    asked_at = world.loop.time()
    try:
        await client.ask(BROKER, topic_pb2.CommandDeleteTopic(topic=topic))
    except ResourceInUse:
        world.provoked["j"] += 1
    except NoAnswer:
        pass
    else:
        status = await ask_status(world, client, unit.record)
        if status == common_pb2.OPEN and asked_at is not None:
            world.history.violation("j", f"{topic} was deleted while {unit.txn_id} was open there")
    if random.random() < 0.5:
        world.history.ask_commit(unit.record)
        await unit.end(unit.end_command(COMMIT, counts=unit.confirmed_counts(), wait_finished=True))
    else:
        await unit.end(unit.end_command(ABORT, wait_finished=True))
    try:
        await client.insist(BROKER, topic_pb2.CommandDeleteTopic(topic=topic), attempts=20)
    except TopicNotFound:
        pass
    try:
        wire = common_pb2.Partition(topic=topic, partition=0, topic_id=1 << 40)
        await client.ask(BROKER, send_command(wire, producer_id, 0, [b"nobody"]))
    except (TopicNotFound, Gone):
        pass


async def first_sequence(world: World, unit: RawUnit, random: Random) -> None:
    """Rule l: an unknown producer begins at 0; anything else means that something was forgotten."""
    topic_id = await unit.client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=random.randrange(2), topic_id=topic_id)
    sent = world.history.send(f"{unit.name}:unknown", "mix", wire.partition)
    command = send_command(wire, random.getrandbits(63), random.randint(1, 9), [sent.value])
    try:
        await unit.client.insist(BROKER, command, attempts=20)
    except SequenceGap:
        world.provoked["l"] += 1
        return
    world.history.violation("4", f"{sent} of an unknown producer was taken without its first")


async def late_reader(world: World, unit: RawUnit, random: Random) -> None:
    """Rule m: who reads what retention removed is told so; silence would look like an empty log."""
    topic, partition = random.choice(world.places)
    description = await unit.client.describe_topic(topic)
    first_offset = description.partitions[partition].first_offset
    if first_offset == 0:
        return
    try:
        await unit.client.read(topic, partition, random.randrange(first_offset))
    except OutOfRange:
        world.provoked["m"] += 1
        return
    world.history.violation("m", f"{topic}/{partition} was read below {first_offset}")


async def old_incarnation(world: World, unit: RawUnit, random: Random) -> None:
    """Rule n: a coordinator from before a restore is refused, but for ends."""
    # Nobody else has it, also not in this client's other transactions: who has spoken for it stays.
    tcid = 40_001 + zlib.crc32(unit.name.encode()) % 25_000
    client = unit.client
    token = f"{unit.name}-first"
    first = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=token)
    )
    again = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=token)
    )
    if first.incarnation != again.incarnation:
        world.history.violation("8", f"token {token} got two incarnations")
    newer = f"{unit.name}-second"
    second = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=newer)
    )
    if second.incarnation <= first.incarnation:
        world.history.violation("8", f"incarnation {second.incarnation} of {tcid} is not new")
    await client.insist(
        BROKER,
        transaction_pb2.CommandLowWatermark(
            tcid=tcid, incarnation=second.incarnation, low_watermark=10, store_token=newer
        ),
    )
    topic_id = await client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=0, topic_id=topic_id)
    old = TxnID.of(tcid, first.incarnation, 1_000)
    for body in (
        transaction_pb2.CommandLowWatermark(
            tcid=tcid, incarnation=first.incarnation, low_watermark=20, store_token=token
        ),
        send_command(wire, random.getrandbits(63), 0, [b"of an old incarnation"], txn_id=old),
    ):
        try:
            await client.insist(BROKER, body, attempts=20)
        except MagnetarError:
            world.provoked["n"] += 1
            continue
        world.history.violation("n", f"an old incarnation was heard: {body}")


async def older_watermark(world: World, unit: RawUnit, random: Random) -> None:
    """Rule c: what has ended stays so, though its coordinator comes back and says less."""
    client = unit.client
    # Nobody else has it, also not in this client's other transactions.
    tcid = 2_000 + zlib.crc32(unit.name.encode()) % 20_000
    token = f"{unit.name}-only"
    taken = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=token)
    )
    topic_id = await client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=random.randrange(2), topic_id=topic_id)

    async def say(low_watermark: int) -> None:
        for attempt in range(1_000):
            try:
                await client.ask(
                    BROKER,
                    transaction_pb2.CommandLowWatermark(
                        tcid=tcid,
                        incarnation=taken.incarnation,
                        low_watermark=low_watermark,
                        next_counter=20,
                        store_token=token,
                    ),
                    address=await client.keeper(wire),
                )
                return
            except NoAnswer:
                await asyncio.sleep(0.02 * min(attempt, 10))

    await say(10)
    await asyncio.sleep(random.choice((0.0, random.uniform(0.0, 0.3))))
    await say(5)
    over = TxnID.of(tcid, taken.incarnation, random.randrange(5, 10))
    send = send_command(wire, random.getrandbits(63), 0, [b"in what has ended"], txn_id=over)
    try:
        await client.insist(BROKER, send, attempts=20)
    except MagnetarError:
        world.provoked["c"] += 1
        return
    world.history.violation("c", f"{over} had ended, and {send.partition} takes a message in it")
