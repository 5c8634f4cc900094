"""Acknowledgements by hand: pending ones, contradicted ones, counted and selected ones, seeks.

Each trick has a subscription of its own; it knows what must be delivered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.raw import BROKER, NoAnswer, RawClient, messages_of
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit, ask_status

from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    ResourceInUse,
    SubscriptionNotFound,
    TransactionConflict,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World


async def zombie_acker(world: World, unit: RawUnit, random: Random) -> None:
    """Rule d: acks of an ended transaction are refused, also where it had none."""
    await unit.begin(5_000)
    topic_id = await unit.client.lookup("mix")
    name = common_pb2.Subscription(
        topic="mix", subscription="audit", partition=random.randrange(2), topic_id=topic_id
    )
    await unit.client.add_subscription(unit.txn_id, name)
    await unit.end(unit.end_command(ABORT, wait_finished=True))
    asked_at = world.loop.time()
    try:
        await unit.client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=name,
                consumer_id=random.getrandbits(63),
                ranges=[common_pb2.OffsetRange(first=0, last=0)],
                txn_id=unit.txn_id.to_wire(),
            ),
        )
    except (InvalidTxnState, SubscriptionNotFound):
        world.provoked["d"] += 1
        return
    world.history.ack_confirmed(
        ("mix", name.partition, "audit"), [0], unit.record, asked_at=asked_at
    )


async def late_subscription(world: World, unit: RawUnit, random: Random) -> None:
    """Rule d: a subscription that is made after a transaction's end refuses its acks, too."""
    client = unit.client
    await unit.begin(5_000)
    topic_id = await client.lookup("mix")
    name = common_pb2.Subscription(
        topic="mix", subscription=f"late-{unit.name}", partition=0, topic_id=topic_id
    )
    await client.add_subscription(unit.txn_id, name)
    existed_before = random.random() < 0.5
    if existed_before:
        await attach(client, name, random.getrandbits(63))
    await unit.end(unit.end_command(ABORT, wait_finished=True))
    if existed_before:
        await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))
    held = await attach(client, name, random.getrandbits(63))
    if not held.messages:
        return
    offset = held.messages[0][0]
    asked_at = world.loop.time()
    try:
        await client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=name,
                consumer_id=held.consumer_id,
                ranges=[common_pb2.OffsetRange(first=offset, last=offset)],
                txn_id=unit.txn_id.to_wire(),
            ),
        )
    except InvalidTxnState:
        world.provoked["d late"] += 1
        await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))
        return
    cursor = ("mix", 0, name.subscription)
    world.history.ack_confirmed(cursor, [offset], unit.record, asked_at=asked_at)


async def acks_in_doubt(world: World, unit: RawUnit, random: Random) -> None:
    """Rule i: a seek is refused while acks pend; what an abort gives back is delivered again."""
    client = unit.client
    await unit.begin(4_000)
    topic_id = await client.lookup("out")
    partition = random.randrange(2)
    name = common_pb2.Subscription(
        topic="out", subscription=f"doubt-{unit.name}", partition=partition, topic_id=topic_id
    )
    held = await attach(client, name, random.getrandbits(63))
    for offset, value, txn_id in held.messages:
        world.history.saw("out", partition, offset, value, txn_id)
    if not held.messages:
        await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))
        await unit.end(unit.end_command(ABORT))
        return
    await client.add_subscription(unit.txn_id, name)
    first = held.messages[0][0]
    cursor = ("out", partition, name.subscription)
    world.history.ack(cursor, [first], unit.record)
    asked_at = world.loop.time()
    await client.insist(
        BROKER,
        broker_pb2.CommandAck(
            subscription=name,
            consumer_id=held.consumer_id,
            ranges=[common_pb2.OffsetRange(first=first, last=first)],
            txn_id=unit.txn_id.to_wire(),
        ),
    )
    world.history.ack_confirmed(cursor, [first], unit.record, asked_at=asked_at)
    try:
        await client.insist(BROKER, broker_pb2.CommandSeek(subscription=name, offset=0))
    except ResourceInUse:
        world.provoked["i"] += 1
    else:
        if await ask_status(world, client, unit.record) == common_pb2.OPEN:
            world.history.violation("i", f"seek of {name.subscription} while an ack pends")
    world.check_description(await client.describe_topic("out"))
    if random.random() < 0.5 and not world.repeats_requests:
        await contradict(world, unit, name, held.consumer_id, first)
    await unit.end(unit.end_command(ABORT, wait_finished=True))
    client.hang_up(BROKER)
    again = await attach(client, name, held.consumer_id, attempts=30, wanted=[first])
    if first not in [offset for offset, _, _ in again.messages]:
        world.history.violation("6", f"{cursor} {first} did not come again after the abort")
    await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))


async def contradict(
    world: World, unit: RawUnit, name: common_pb2.Subscription, consumer_id: int, offset: int
) -> None:
    """A plain ack of what pends is dropped; another transaction's is a conflict."""
    client = unit.client
    ranges = [common_pb2.OffsetRange(first=offset, last=offset)]
    plain = broker_pb2.CommandAck(subscription=name, consumer_id=consumer_id, ranges=ranges)
    other = RawUnit(world, client, unit.random, f"{unit.name}-other")
    await other.begin(4_000)
    await client.add_subscription(other.txn_id, name)
    try:
        await client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=name,
                consumer_id=consumer_id,
                ranges=ranges,
                txn_id=other.txn_id.to_wire(),
            ),
        )
    except TransactionConflict:
        world.provoked["i conflict"] += 1
    else:
        if await ask_status(world, client, unit.record) == common_pb2.OPEN:
            world.history.violation("i", f"two transactions hold {name.subscription} {offset}")
    await other.end(other.end_command(ABORT, wait_finished=True))
    if await ask_status(world, client, unit.record) != common_pb2.OPEN:
        raise InvalidTxnState("expired meanwhile")
    # It must still be open afterwards, or the ack may have counted. Once only: a late copy would
    # acknowledge what the abort gives back.
    await client.ask(BROKER, plain)
    if await ask_status(world, client, unit.record) != common_pb2.OPEN:
        raise InvalidTxnState("expired meanwhile")
    world.provoked["i dropped"] += 1


async def counted_acks(world: World, unit: RawUnit, random: Random) -> None:
    """Rules g and h for acks: what is not counted or not selected comes again."""
    client = unit.client
    await unit.begin(5_000)
    topic_id = await client.lookup("mix")
    partition = random.randrange(2)
    name = common_pb2.Subscription(
        topic="mix", subscription=f"counted-{unit.name}", partition=partition, topic_id=topic_id
    )
    held = await attach(client, name, random.getrandbits(63), permits=1_000)
    offsets = [offset for offset, _, _ in held.messages][:2]
    if len(offsets) < 2:
        await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))
        await unit.end(unit.end_command(ABORT))
        return
    await client.add_subscription(unit.txn_id, name)
    cursor = ("mix", partition, name.subscription)
    for sequence, offset in enumerate(offsets):
        world.history.ack(cursor, [offset], unit.record)
        await client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=name,
                consumer_id=held.consumer_id,
                ranges=[common_pb2.OffsetRange(first=offset, last=offset)],
                txn_id=unit.txn_id.to_wire(),
                ack_sequence=sequence,
            ),
        )
    counted = random.randint(0, 2)
    selected = random.random() < 0.6
    command = unit.end_command(COMMIT, counts={}, wait_finished=True)
    command.subscription_counts.append(
        transaction_pb2.SubscriptionCounts(
            subscription=name,
            consumers=[transaction_pb2.WriterCount(writer_id=held.consumer_id, count=counted)],
        )
    )
    if random.random() < 0.5 or not selected:
        command.selection_given = True
        command.selected_writer_ids.extend([held.consumer_id] if selected else [])
    world.history.ask_commit(unit.record, expected=[])
    if await unit.end(command) != common_pb2.COMMITTED:
        return
    consumed = offsets[:counted] if selected else []
    client.hang_up(BROKER)
    wanted = [offset for offset in offsets if offset not in consumed]
    again = await attach(
        client, name, held.consumer_id, permits=1_000, attempts=30 if wanted else 1, wanted=wanted
    )
    found = [offset for offset, _, _ in again.messages]
    for offset in offsets:
        if offset in consumed and offset in found:
            world.history.violation("6", f"{cursor} {offset} comes again after the commit")
        if offset not in consumed and offset not in found:
            world.history.violation("6", f"{cursor} {offset} did not count, and is gone")
    world.provoked["h acks"] += 1
    await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))


async def seek_back(world: World, unit: RawUnit, random: Random) -> None:
    """A seek voids what was acknowledged: everything from there on is delivered again."""
    if world.repeats_requests:
        return  # A late copy of an ack would void the seek.
    client = unit.client
    topic_id = await client.lookup("mix")
    partition = random.randrange(2)
    name = common_pb2.Subscription(
        topic="mix", subscription=f"seek-{unit.name}", partition=partition, topic_id=topic_id
    )
    shared = random.random() < 0.5
    type = broker_pb2.SHARED if shared else broker_pb2.EXCLUSIVE
    held = await attach(client, name, random.getrandbits(63), permits=1_000, type=type)
    offsets = [offset for offset, _, _ in held.messages]
    if not offsets:
        return
    cursor = ("mix", partition, name.subscription)
    world.history.ack(cursor, offsets, None)
    up_to_last = broker_pb2.CommandAck(
        subscription=name,
        consumer_id=held.consumer_id,
        ack_type=broker_pb2.CommandAck.CUMULATIVE,
        ranges=[common_pb2.OffsetRange(first=0, last=max(offsets))],
    )
    try:
        await client.ask(BROKER, up_to_last)
    except InvalidArgument:
        # What lies below may be with others: they are named one by one.
        if not shared:
            raise
        world.provoked["cumulative refused"] += 1
        up_to_last.ack_type = broker_pb2.CommandAck.INDIVIDUAL
        await client.ask(BROKER, up_to_last)
    world.check_description(await client.describe_topic("mix"))
    target = random.choice(offsets)
    world.history.unchecked_cursors.add(cursor)
    reply = await client.insist(BROKER, broker_pb2.CommandSeek(subscription=name, offset=target))
    client.hang_up(BROKER)
    again = await attach(
        client, name, held.consumer_id, permits=1_000, attempts=30, wanted=[target], type=type
    )
    found = [offset for offset, _, _ in again.messages]
    if reply.offset != target or min(found, default=None) != target:
        world.history.violation(
            "6", f"{cursor}: a seek to {target} led to {reply.offset}, and {found[:3]} came"
        )
    world.provoked["seek"] += 1
    await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))


class Attached:
    """What a consumer got."""

    def __init__(self, consumer_id: int) -> None:
        self.consumer_id = consumer_id
        self.messages: list[tuple[int, bytes, TxnID | None]] = []


async def attach(
    client: RawClient,
    name: common_pb2.Subscription,
    consumer_id: int,
    *,
    permits: int = 8,
    attempts: int = 1,
    wanted: Collection[int] = (),
    type: broker_pb2.SubscriptionType = broker_pb2.SHARED,
) -> Attached:
    """Attach a consumer, and take what comes first.

    Args:
        wanted: offsets to wait for.
        attempts: how often to try, each for two seconds, before nothing is taken for an answer.
    """
    attached = Attached(consumer_id)
    got = asyncio.Event()

    def on_push(one: Any) -> None:
        if one.WhichOneof("body") != "deliver" or one.deliver.consumer_id != consumer_id:
            return
        for delivered in one.deliver.batches:
            txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
            for offset, value in messages_of(delivered):
                attached.messages.append((offset, value, txn_id))
        if {offset for offset, _, _ in attached.messages}.issuperset(wanted):
            got.set()

    silence = 0
    while silence < attempts:
        client.attach_epoch += 1
        try:
            session = await client.broker_session(name)
            session.on_push = on_push
            await session.ask(
                broker_pb2.CommandSubscribe(
                    subscription=name,
                    consumer_id=consumer_id,
                    type=type,
                    initial_position=broker_pb2.EARLIEST,
                    consumer_name=client.name,
                    attach_epoch=client.attach_epoch,
                )
            )
            session.post(
                broker_pb2.CommandFlow(subscription=name, consumer_id=consumer_id, permits=permits)
            )
        except NoAnswer:
            client.hang_up(BROKER)
            await asyncio.sleep(0.2)
            continue
        try:
            async with asyncio.timeout(2.0):
                await got.wait()
                await asyncio.sleep(0.02)  # What was sent together arrives one after the other.
            return attached
        except TimeoutError:
            silence += 1
            client.hang_up(BROKER)
    return attached
