"""Runs: many commands in a frame, of which some fail, and which wait for different things.

A command of a run is applied whole or not at all, whatever becomes of its neighbours. It is
answered when what it depends on is durable, not what its neighbours depend on.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Sent
from tests.simulation.poison import MARK
from tests.simulation.raw import BROKER, COORDINATOR, NoAnswer, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit, ask_status

from magnetar_core.errors import (
    InternalError,
    InvalidTxnState,
    MagnetarError,
    TransactionConflict,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC = "runs"
# Of the consumer that acknowledges in these transactions, and of the one that does it again.
CONSUMER_ID, OTHER_CONSUMER_ID = 7, 8
COMMITTED = (common_pb2.COMMITTING, common_pb2.COMMITTED)


async def mixed_runs(world: World, unit: RawUnit, random: Random) -> None:
    """Rules a and b: transactions that begin, write and end together, beside plain messages."""
    topic_id = await unit.client.lookup(TOPIC)
    wire = common_pb2.Partition(topic=TOPIC, partition=0, topic_id=topic_id)
    place = await _subscribe(unit, random, wire)
    units = await _begin(world, unit, random, wire, place)
    await _send(world, unit, units, random, wire)
    acked = await _ack(world, unit, units, place)
    await _end(world, unit, units, random, acked)


async def _subscribe(
    unit: RawUnit, random: Random, wire: common_pb2.Partition
) -> common_pb2.Subscription:
    """Make a subscription that no other run knows."""
    place = common_pb2.Subscription(
        topic=wire.topic,
        partition=wire.partition,
        topic_id=wire.topic_id,
        subscription=f"runs {random.getrandbits(40)}",
    )
    body = broker_pb2.CommandSubscribe(
        subscription=place, consumer_id=CONSUMER_ID, initial_position=broker_pb2.EARLIEST
    )
    await unit.client.insist(BROKER, body)
    return place


async def _begin(
    world: World,
    unit: RawUnit,
    random: Random,
    wire: common_pb2.Partition,
    place: common_pb2.Subscription,
) -> list[RawUnit]:
    """Begin transactions, some of which are told before they are durable."""
    bodies = [
        transaction_pb2.CommandNewTxn(
            txn_timeout_ms=5_000,
            partitions=[wire],
            subscriptions=[place],
            answer_before_durable=random.random() < 0.5,
        )
        for _ in range(random.randint(2, 6))
    ]
    units: list[RawUnit] = []
    for number, answer in enumerate(await _ask(world, unit, COORDINATOR, bodies)):
        if isinstance(answer, transaction_pb2.CommandNewTxnResponse):
            one = RawUnit(world, unit.client, random, f"{unit.name}/{number}")
            one.begun(TxnID.from_wire(answer.txn_id), wire)
            units.append(one)
    return units


async def _send(
    world: World,
    unit: RawUnit,
    units: list[RawUnit],
    random: Random,
    wire: common_pb2.Partition,
) -> None:
    """Send messages in these transactions, and plain ones, which need less to be confirmed."""
    writers = [random.choice(units) if units and random.random() < 0.6 else None for _ in range(8)]
    sends: list[tuple[RawUnit | None, Sent, broker_pb2.CommandSend]] = []
    for writer in writers:
        producer_id = random.getrandbits(63)
        owner = unit if writer is None else writer
        record = None if writer is None else writer.record
        sent = world.history.send(f"{owner.name}:{producer_id}", TOPIC, 0, record)
        command = send_command(wire, producer_id, 0, [sent.value])
        if writer is not None:
            command.txn_id.CopyFrom(writer.txn_id.to_wire())
        sends.append((writer, sent, command))
    asked_at = world.loop.time()
    answers = await _ask(world, unit, BROKER, [command for _, _, command in sends])
    failed: list[tuple[RawUnit | None, Sent, broker_pb2.CommandSend]] = []
    for (writer, sent, command), answer in zip(sends, answers, strict=True):
        if isinstance(answer, InternalError):
            failed.append((writer, sent, command))
        elif isinstance(answer, broker_pb2.CommandSendResponse):
            _confirmed(world, writer, sent, command.producer_id, asked_at)
    for writer, sent, command in failed:
        asked_at = world.loop.time()
        try:
            answer = await unit.client.ask(BROKER, command)
        except (MagnetarError, NoAnswer):
            continue
        if answer.duplicate:
            world.history.violation("a", f"{sent} failed in its run, and has had an effect")
        _confirmed(world, writer, sent, command.producer_id, asked_at)


def _confirmed(
    world: World, writer: RawUnit | None, sent: Sent, producer_id: int, asked_at: float
) -> None:
    # A plain one may be lost with the power, though it is confirmed.
    if writer is not None:
        world.history.confirm(sent, asked_at=asked_at)
        writer.confirmed[TOPIC, 0, producer_id] = [sent]
        writer.record.writers.setdefault((TOPIC, 0), []).append(sent.producer)


async def _ack(
    world: World, unit: RawUnit, units: list[RawUnit], place: common_pb2.Subscription
) -> list[transaction_pb2.SubscriptionCounts]:
    """Acknowledge a message in each of these transactions; if that fails, in another one of them.

    Returns:
        The confirmed acks of each.
    """
    description = await unit.client.describe_topic(TOPIC)
    confirmed = [transaction_pb2.SubscriptionCounts(subscription=place) for _ in units]
    cursor = (place.topic, place.partition, place.subscription)

    def ack(number: int, offset: int, consumer_id: int) -> broker_pb2.CommandAck:
        world.history.ack(cursor, [offset], units[number].record)
        return broker_pb2.CommandAck(
            subscription=place,
            consumer_id=consumer_id,
            ranges=[common_pb2.OffsetRange(first=offset, last=offset)],
            txn_id=units[number].txn_id.to_wire(),
        )

    def told(number: int, offset: int, consumer_id: int, asked_at: float) -> None:
        record = units[number].record
        world.history.ack_confirmed(cursor, [offset], record, asked_at=asked_at)
        confirmed[number].consumers.add(writer_id=consumer_id, count=1)

    # The first transaction acknowledges the first message, and so on.
    count = min(len(units), description.partitions[0].end_offset)
    asked_at = world.loop.time()
    acks = [ack(number, number, CONSUMER_ID) for number in range(count)]
    answers = await _ask(world, unit, BROKER, acks)
    for number, answer in enumerate(answers):
        if isinstance(answer, broker_pb2.CommandAckResponse):
            told(number, number, CONSUMER_ID, asked_at)
    for number, answer in enumerate(answers):
        if not isinstance(answer, InternalError):
            continue
        asked_at = world.loop.time()
        try:
            await unit.client.ask(BROKER, ack(number - 1, number, OTHER_CONSUMER_ID))
        except TransactionConflict:
            failed = units[number].txn_id
            world.history.violation("a", f"an ack in {failed} failed, and has had an effect")
        except (MagnetarError, NoAnswer):
            continue
        else:
            told(number - 1, number, OTHER_CONSUMER_ID, asked_at)
    return confirmed


async def _end(
    world: World,
    unit: RawUnit,
    units: list[RawUnit],
    random: Random,
    acked: list[transaction_pb2.SubscriptionCounts],
) -> None:
    """End these transactions; those whose end fails are as open as before.

    Args:
        acked: the confirmed acks of each.
    """
    bodies: list[transaction_pb2.CommandEndTxn] = []
    for one, counts in zip(units, acked, strict=True):
        if random.random() < 0.7:
            world.history.ask_commit(one.record)
            commit = one.end_command(COMMIT, counts=one.confirmed_counts())
            commit.subscription_counts.append(counts)
            bodies.append(commit)
        else:
            world.history.ask_abort(one.record)
            bodies.append(one.end_command(ABORT))
    asked_at = world.loop.time()
    answers = await _ask(world, unit, COORDINATOR, bodies)
    for one, body, answer in zip(units, bodies, answers, strict=True):
        if isinstance(answer, transaction_pb2.CommandEndTxnResponse):
            world.history.told(one.record, answer.status, asked_at=asked_at)
            continue
        if isinstance(answer, InternalError):
            status = await ask_status(world, one.client, one.record)
            if body.txn_action == COMMIT and status in COMMITTED:
                world.history.violation("a", f"the end of {one.txn_id} failed, and took effect")
        try:
            await one.end(body)
        except InvalidTxnState:
            # It has expired, or its record was lost before it was durable.
            await ask_status(world, one.client, one.record)


async def _ask(world: World, unit: RawUnit, service: str, bodies: list[Any]) -> list[Any]:
    """Send commands in a frame of which some fail; the answers, errors among them."""
    if not bodies:
        return []
    answers = await unit.client.ask_together(service, bodies, traceparent=MARK)
    world.provoked["run"] += 1
    world.provoked["run failed"] += sum(isinstance(one, InternalError) for one in answers)
    return answers
