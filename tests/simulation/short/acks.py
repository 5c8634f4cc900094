"""Acknowledgements by hand, as no SDK sends them: of what was never delivered, and of what was
given back a moment ago.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.ack_tricks import attach
from tests.simulation.raw import BROKER
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit
from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import feed, filled
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import (
    InvalidTxnState,
    SubscriptionNotFound,
    TransactionConflict,
)
from magnetar_core.wire import broker_pb2, common_pb2


async def ack_by_hand(
    actor: Actor,
    step: Step,
    *,
    topic: str,
    partition: int,
    name: str,
    slot: str,
    first: int,
    count: int,
    permits: int,
) -> None:
    """Acknowledge offsets in a transaction, whether anybody has been given them or not.

    Args:
        slot: the transaction; begun with its first use.
        permits: what to be delivered before; 0: nothing.
    """
    world, client = actor.world, actor.raw()
    unit: RawUnit | None = actor.units.get(slot)
    if unit is None:
        unit = actor.unit(step)
        await unit.begin(20_000)
        actor.units[slot] = unit
    place = await _place(actor, topic, partition, name)
    consumer_id = _consumer_id(actor, name)
    if permits or not actor.kept.get(name):
        await attach(client, place, consumer_id, permits=max(1, permits))
        actor.kept[name] = True
    description = await client.describe_topic(topic)
    world.check_description(description)
    end = description.partitions[partition].end_offset
    offsets = range(first, min(first + count, end))
    if not offsets:
        return
    await client.add_subscription(unit.txn_id, place)
    cursor = (topic, partition, name)
    world.history.ack(cursor, offsets, unit.record)
    sequences: dict[str, int] = actor.units.setdefault(f"{slot}/sequences", {})
    sequence = sequences.get(name, 0)
    asked_at = world.loop.time()
    try:
        await client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=place,
                consumer_id=consumer_id,
                ranges=[common_pb2.OffsetRange(first=offsets[0], last=offsets[-1])],
                txn_id=unit.txn_id.to_wire(),
                ack_sequence=sequence,
            ),
        )
    except (TransactionConflict, InvalidTxnState, SubscriptionNotFound):
        world.history.counts["conflicts"] += 1
        return
    sequences[name] = sequence + 1
    world.provoked["acked by hand"] += 1
    world.history.ack_confirmed(cursor, offsets, unit.record, asked_at=asked_at)


async def end_by_hand(
    actor: Actor, step: Step, *, slot: str, action: str, wait_finished: bool
) -> None:
    """End such a transaction; with "forget" its client falls silent until it expires."""
    unit: RawUnit | None = actor.units.pop(slot, None)
    actor.units.pop(f"{slot}/sequences", None)
    if unit is None or action == "forget":
        return
    try:
        if action == "commit":
            actor.world.history.ask_commit(unit.record, expected=[])
            await unit.end(unit.end_command(COMMIT, wait_finished=wait_finished))
        else:
            await unit.end(unit.end_command(ABORT, wait_finished=wait_finished))
    except InvalidTxnState:
        return


async def permit_by_hand(
    actor: Actor, step: Step, *, topic: str, partition: int, name: str, permits: int
) -> None:
    """Ask for more, if attached: what has not been read is read now."""
    if not actor.kept.get(name):
        return
    place = await _place(actor, topic, partition, name)
    consumer_id = _consumer_id(actor, name)
    session = await actor.raw().broker_session(place)
    session.post(
        broker_pb2.CommandFlow(subscription=place, consumer_id=consumer_id, permits=permits)
    )
    actor.world.provoked["asked for by hand"] += 1


async def all_there(actor: Actor, step: Step, *, topic: str, partition: int, name: str) -> None:
    """At the end: what no transaction has consumed for certain is delivered to who asks."""
    world, client = actor.world, actor.raw()
    place = await _place(actor, topic, partition, name)
    description = await client.describe_topic(topic)
    world.check_description(description)
    part = description.partitions[partition]
    cursor = (topic, partition, name)
    known = [one for one in part.subscriptions if one.subscription == name]
    if not known:
        return
    consumed = set()
    for offset, ackers in world.history.ackers.get(cursor, {}).items():
        # A commit of which it is not known whether it counts any of them may have consumed it.
        if any(one is not None and one.commit_asked for one in ackers):
            consumed.add(offset)
    wanted = [
        offset for offset in range(part.first_offset, part.end_offset) if offset not in consumed
    ]
    client.hang_up(BROKER)
    consumer_id = actor.random(f"{name}/end").getrandbits(60)
    # A link that was half-open when its client died may have something for 40 s.
    attached = await attach(client, place, consumer_id, permits=500, attempts=25, wanted=wanted)
    found = {offset for offset, _, _ in attached.messages}
    missing = [offset for offset in wanted if offset not in found]
    if missing:
        world.history.violation("6", f"{cursor} {missing} were never consumed, and do not come")
    world.provoked["unconsumed came"] += len(wanted)


def _consumer_id(actor: Actor, name: str) -> int:
    """Of this life: whoever comes after it is another consumer."""
    return actor.random(f"{name}/{actor.node.life}").getrandbits(60)


async def _place(
    actor: Actor, topic: str, partition: int, subscription: str
) -> common_pb2.Subscription:
    topic_id = await actor.raw().lookup(topic)
    return common_pb2.Subscription(
        topic=topic, partition=partition, topic_id=topic_id, subscription=subscription
    )


def by_hand(draft: Draft) -> None:
    """Two transactions by turns on one subscription, over what is read, unread and given back."""
    random = draft.random
    topic = draft.topic("mix", 2)
    before = filled(draft, topic, random.randint(6, 20))
    name = f"hand-{len(draft.steps)}"
    place: dict[str, Any] = {"topic": topic, "partition": draft.partition(topic), "name": name}
    client = draft.client("acker")
    for number in range(random.randint(4, 9)):
        slot = f"slot{random.randrange(2)}"
        if random.random() < 0.6:
            draft.step(
                client,
                "ack by hand",
                slot=slot,
                first=random.randrange(10),
                count=random.choice((1, 2, 5)),
                permits=random.choice((0, 0, 3, 50)),
                after=(before,) if number == 0 else (),
                **place,
            )
        else:
            draft.step(
                client,
                "end by hand",
                slot=slot,
                action=random.choice(("commit", "abort", "abort", "forget")),
                wait_finished=random.random() < 0.5,
                pause_s=random.choice((0.0, 0.0, 0.01)),
            )
            if random.random() < 0.5:
                _asked_meanwhile(draft, client, place)
    if random.random() < 0.5:
        feed(draft, topic, 2)
    for slot in ("slot0", "slot1"):
        draft.step(
            client,
            "end by hand",
            slot=slot,
            action=random.choice(("commit", "abort")),
            wait_finished=False,
        )
    draft.step(client, "all there", closing=True, **place)


def _asked_meanwhile(draft: Draft, client: str, place: dict[str, Any]) -> None:
    """Somebody asks for messages while an end is being written, which takes its time."""
    random = draft.random
    sync_s = random.choice((0.01, 0.03))
    ending = len(draft.steps)
    draft.fault("disk stall", step=ending, server="broker", sync_s=sync_s, seconds=0.2)
    for _ in range(random.choice((1, 3))):
        draft.step(
            client,
            "permit by hand",
            permits=random.choice((1, 5)),
            pause_s=random.uniform(0.0, sync_s),
            **place,
        )


VERBS: dict[str, Verb] = {
    "permit by hand": permit_by_hand,
    "ack by hand": ack_by_hand,
    "end by hand": end_by_hand,
    "all there": all_there,
}
