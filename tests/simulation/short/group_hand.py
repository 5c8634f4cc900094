"""A member of a group by hand: one that a step joins, keeps alive and lets work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.raw import BROKER, messages_of
from tests.simulation.raw_unit import RawUnit
from tests.simulation.short.actors import Actor

from magnetar_core.errors import (
    FencedInstance,
    GroupNotFound,
    IllegalGeneration,
    InvalidArgument,
    InvalidTxnState,
    TransactionConflict,
    UnknownMember,
)
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2

GROUP = "hands"
SESSION_MS = 900
Partition = tuple[int, int]


@dataclass
class Hand:
    """One member.

    Attributes:
        held: with the generation in which it got each.
        attached: those of them that it has a consumer on, with its id.
    """

    member_id: str
    instance_id: str
    topic: str
    join_epoch: int = 0
    heartbeat_number: int = 0
    held: dict[Partition, int] = field(default_factory=dict)
    attached: dict[Partition, int] = field(default_factory=dict)
    messages: dict[Partition, list[int]] = field(default_factory=dict)

    def held_of(self, shard: int) -> dict[Partition, int]:
        """What it holds of a broker's partitions."""
        return {one: held for one, held in self.held.items() if shard_of(*one) == shard}

    def take(self, state: group_pb2.CommandGroupHeartbeatResponse, shard: int) -> None:
        """What a broker does not assign any more is released with the next heartbeat there."""
        assigned = {
            (one.partition.topic_id, one.partition.partition): one.generation
            for one in state.assigned
        }
        for partition, generation in self.held_of(shard).items():
            if assigned.get(partition) != generation:
                del self.held[partition]
                self.attached.pop(partition, None)
                self.messages.pop(partition, None)
        self.held.update(assigned)

    def name_at(self, partition: Partition) -> common_pb2.GroupMember:
        return common_pb2.GroupMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.held.get(partition, 0),
        )


def place_of(hand: Hand, partition: Partition) -> common_pb2.Subscription:
    return common_pb2.Subscription(
        topic=hand.topic, topic_id=partition[0], partition=partition[1], subscription=GROUP
    )


async def join(actor: Actor, hand: Hand) -> bool:
    """Join at every broker. False: one of them refuses."""
    hand.join_epoch += 1
    for shard in range(len(actor.raw().brokers)):
        if not await _join_at(actor, hand, shard):
            return False
    return True


async def _join_at(actor: Actor, hand: Hand, shard: int) -> bool:
    try:
        reply = await actor.raw().insist(
            BROKER,
            group_pb2.CommandJoinGroup(
                group=GROUP,
                member_id=hand.member_id,
                instance_id=hand.instance_id,
                topics=[hand.topic],
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=2 * SESSION_MS,
                initial_position=broker_pb2.EARLIEST,
                join_epoch=hand.join_epoch,
            ),
            attempts=20,
            address=actor.raw().brokers[shard],
        )
    except (UnknownMember, FencedInstance):
        return False
    hand.take(reply.state, shard)
    return True


async def beat(actor: Actor, hand: Hand) -> bool:
    """A sign of life for every broker. False: it is no member any more."""
    hand.heartbeat_number += 1
    for shard in range(len(actor.raw().brokers)):
        if not await _beat_at(actor, hand, shard):
            return False
    return True


async def _beat_at(actor: Actor, hand: Hand, shard: int) -> bool:
    held = [
        group_pb2.AssignedPartition(
            partition=common_pb2.Partition(topic=hand.topic, topic_id=topic_id, partition=number),
            generation=generation,
        )
        for (topic_id, number), generation in hand.held_of(shard).items()
    ]
    try:
        state = await actor.raw().insist(
            BROKER,
            group_pb2.CommandGroupHeartbeat(
                group=GROUP,
                member_id=hand.member_id,
                instance_id=hand.instance_id,
                held=held,
                heartbeat_number=hand.heartbeat_number,
            ),
            attempts=20,
            address=actor.raw().brokers[shard],
        )
    except (UnknownMember, FencedInstance, GroupNotFound):
        return False
    hand.take(state, shard)
    return True


async def receive(actor: Actor, hand: Hand, permits: int, *, timeout_s: float) -> None:
    client = actor.raw()
    sessions = [await client.session(BROKER, broker) for broker in client.brokers]
    messages = hand.messages
    by_consumer: dict[int, Partition] = {}

    def on_push(one: Any) -> None:
        name = one.WhichOneof("body")
        if name == "consumer_change" and one.consumer_change.closed:
            gone = by_consumer.get(one.consumer_change.consumer_id)
            if gone is not None:
                hand.attached.pop(gone, None)
                messages.pop(gone, None)
        if name != "deliver" or one.deliver.consumer_id not in by_consumer:
            return
        partition = by_consumer[one.deliver.consumer_id]
        for delivered in one.deliver.batches:
            txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
            for offset, value in messages_of(delivered):
                actor.world.history.saw(hand.topic, partition[1], offset, value, txn_id)
                messages.setdefault(partition, []).append(offset)

    for session in sessions:
        session.on_push = on_push
    for partition in list(hand.held):
        place = place_of(hand, partition)
        session = sessions[shard_of(*partition)]
        client.attach_epoch += 1
        consumer_id = actor.random(f"{hand.member_id}/{partition[1]}").getrandbits(60)
        by_consumer[consumer_id] = partition
        # What its earlier self had comes again.
        messages.pop(partition, None)
        try:
            await session.ask(
                broker_pb2.CommandSubscribe(
                    subscription=place,
                    consumer_id=consumer_id,
                    type=broker_pb2.EXCLUSIVE,
                    consumer_name=hand.member_id,
                    attach_epoch=client.attach_epoch,
                    member=hand.name_at(partition),
                )
            )
        except (UnknownMember, FencedInstance, IllegalGeneration, InvalidArgument):
            continue
        hand.attached[partition] = consumer_id
        session.post(
            broker_pb2.CommandFlow(subscription=place, consumer_id=consumer_id, permits=permits)
        )
    await asyncio.sleep(timeout_s)


async def ack(
    actor: Actor, hand: Hand, partition: Partition, unit: RawUnit | None, sequence: int
) -> bool:
    """Whether it was taken."""
    history = actor.world.history
    offsets = hand.messages.pop(partition, [])
    if not offsets:
        return True
    cursor = (hand.topic, partition[1], GROUP)
    record = unit.record if unit is not None else None
    history.ack(cursor, offsets, record)
    asked_at = actor.world.loop.time()
    try:
        await actor.raw().insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=place_of(hand, partition),
                consumer_id=hand.attached.get(partition, 1),
                ranges=[common_pb2.OffsetRange(first=one, last=one) for one in offsets],
                txn_id=unit.txn_id.to_wire() if unit is not None else None,
                ack_sequence=sequence,
                member=hand.name_at(partition),
            ),
            attempts=20,
        )
    except (
        FencedInstance,
        IllegalGeneration,
        InvalidTxnState,
        TransactionConflict,
        UnknownMember,
    ):
        return False
    if record is not None:
        history.ack_confirmed(cursor, offsets, record, asked_at=asked_at)
    actor.world.provoked["acked as a member"] += 1
    return True
