"""Hand-made clients with TxnIDs that nobody issued, or that are over, and what these hold up.

Nothing may stay here in a TxnID that its coordinator has ended, or does not know: it is settled
within two seconds, whatever else is open.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.ack_tricks import attach
from tests.simulation.raw import BROKER, NoAnswer, RawClient, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import MagnetarError
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2

SETTLED_SECONDS_MAX = 2.0
# Beyond the bound: one look at the broker every so often, and the way of an answer.
SLACK_SECONDS = 0.7
PATIENCE_SECONDS = 70.0
INTRUDER = b"intruder"
# The form for people too, with a producer id that the broker draws, or one of its client's.
SENDS = ("send", "publish", "publish as")


async def open_long(actor: Actor, step: Step, *, slot: str, topic: str, sends: int) -> None:
    """A transaction that stays open, as somebody's who thinks for long."""
    unit = actor.unit(step)
    await unit.begin(100_000)
    for _ in range(sends):
        await unit.send(1, topic, 0)
    actor.units[slot] = unit


async def end_long(actor: Actor, step: Step, *, slot: str) -> None:
    unit: RawUnit | None = actor.units.pop(slot, None)
    if unit is not None:
        await unit.end(unit.end_command(ABORT))


async def late(
    actor: Actor,
    step: Step,
    *,
    topic: str,
    partition: int,
    what: str,
    end: str,
    delay_s: float,
    open_s: float = 0.0,
) -> None:
    """A send or an ack in a transaction that has ended without this participant.

    Args:
        open_s: how long it is open at least; if at all, it has taken part in the partition, where
            its end is answered, and so nothing is taken any more.
    """
    unit = actor.unit(step)
    await unit.begin(60_000)
    place = await _place(actor, topic, partition, f"late-{step.number}")
    held = await _held(actor, place) if what == "ack" else []
    sent = await unit.send(step.number + 7_000, topic, partition) if open_s else []
    await asyncio.sleep(open_s)
    if end == "commit":
        actor.world.history.ask_commit(unit.record, expected=sent)
        counts = unit.confirmed_counts()
        await unit.end(unit.end_command(COMMIT, counts=counts, wait_finished=True))
    else:
        await unit.end(unit.end_command(ABORT, wait_finished=True))
    await asyncio.sleep(delay_s)
    await _intrude(actor, place, unit.txn_id, what, held, step.number)


async def stranger(
    actor: Actor, step: Step, *, topic: str, partition: int, what: str, kind: str
) -> None:
    """Somebody makes a TxnID up: of no coordinator, of the future, or the next one but few."""
    unit = actor.unit(step)
    await unit.begin(60_000)
    known = unit.txn_id
    place = await _place(actor, topic, partition, f"stranger-{step.number}")
    held = await _held(actor, place) if what == "ack" else []
    made_up = {
        "tcid": TxnID.of(77, 1, 5),
        "incarnation": TxnID.of(known.tcid, known.incarnation + 3, 2),
        "counter": TxnID.of(known.tcid, known.incarnation, known.counter + 10_000_000),
        "soon": TxnID.of(known.tcid, known.incarnation, known.counter + 2),
    }[kind]
    await unit.end(unit.end_command(ABORT))
    if kind == "soon":
        await _intrude(actor, place, made_up, what, held, step.number, settles=False)
        await _be_issued(actor, step, topic, partition, made_up)
    else:
        await _intrude(actor, place, made_up, what, held, step.number)


async def _be_issued(actor: Actor, step: Step, topic: str, partition: int, wanted: TxnID) -> None:
    """Begin until the id is issued; whoever gets it is not harmed by what was done before."""
    for _ in range(8):
        unit = actor.unit(step)
        await unit.begin(20_000)
        if unit.txn_id == wanted:
            sent = await unit.send(step.number + 5_000, topic, partition, count=2)
            actor.world.history.ask_commit(unit.record, expected=sent)
            await unit.end(
                unit.end_command(COMMIT, counts=unit.confirmed_counts(), wait_finished=True)
            )
            actor.world.provoked["stranger's id issued"] += 1
            return
        await unit.end(unit.end_command(ABORT))
        if unit.txn_id > wanted:
            return


async def _place(
    actor: Actor, topic: str, partition: int, subscription: str
) -> common_pb2.Subscription:
    topic_id = await actor.raw().lookup(topic)
    return common_pb2.Subscription(
        topic=topic, partition=partition, topic_id=topic_id, subscription=subscription
    )


async def _held(actor: Actor, place: common_pb2.Subscription) -> list[int]:
    """Offsets that a consumer of ours has there."""
    consumer_id = actor.random(place.subscription).getrandbits(60)
    attached = await attach(actor.raw(), place, consumer_id, permits=100)
    return [offset for offset, _, _ in attached.messages]


async def _intrude(
    actor: Actor,
    place: common_pb2.Subscription,
    txn_id: TxnID,
    what: str,
    held: list[int],
    number: int,
    *,
    settles: bool = True,
) -> None:
    """Send, publish or acknowledge in a transaction that is not there."""
    world, client = actor.world, actor.raw()
    body: Any
    if what == "ack":
        if not held:
            return
        body = broker_pb2.CommandAck(
            subscription=place,
            consumer_id=actor.random(place.subscription).getrandbits(60),
            ranges=[common_pb2.OffsetRange(first=held[0], last=held[0])],
            txn_id=txn_id.to_wire(),
        )
    else:
        wire = common_pb2.Partition(
            topic=place.topic, partition=place.partition, topic_id=place.topic_id
        )
        producer_id = number + 9_000
        # Nobody may ever see it: no history knows it.
        if what == "send":
            body = send_command(wire, producer_id, 0, [INTRUDER], txn_id=txn_id)
        else:
            body = broker_pb2.CommandPublish(
                partition=wire,
                messages=[broker_pb2.Message(value=INTRUDER)],
                producer_id=0 if what == "publish" else producer_id,
                txn_id=txn_id.to_wire(),
            )
    try:
        await client.insist(BROKER, body, attempts=5)
    except MagnetarError:
        world.provoked[f"{what} refused"] += 1
    except NoAnswer:
        # Told to ask again, until it is known whether the id has been issued.
        world.provoked[f"{what} put off"] += 1
    else:
        world.provoked[f"{what} let in"] += 1
    # Also what was refused at last: an attempt whose answer got lost may have been let in.
    if settles:
        await _settled(actor, client, place, txn_id, what, held)


async def _settled(
    actor: Actor,
    client: RawClient,
    place: common_pb2.Subscription,
    txn_id: TxnID,
    what: str,
    held: list[int],
) -> None:
    """It holds nothing here any more, soon."""
    world = actor.world
    since = world.loop.time()
    nodes = [actor.name, *world.server_names]
    while world.loop.time() < since + PATIENCE_SECONDS:
        if not await _holds_something(client, place, txn_id, what):
            if what == "ack":
                client.hang_up(BROKER)
                consumer_id = actor.random(place.subscription).getrandbits(60)
                await attach(client, place, consumer_id, permits=100, attempts=3, wanted=held[:1])
            return
        calm = world.calm.seconds(nodes, since)
        if calm > SETTLED_SECONDS_MAX + SLACK_SECONDS:
            world.history.violation(
                "time",
                f"{what} in {txn_id}, which is not open, is held at"
                f" {place.topic}/{place.partition} {calm:.3f} calm seconds later",
            )
        await asyncio.sleep(0.1)


async def _holds_something(
    client: RawClient, place: common_pb2.Subscription, txn_id: TxnID, what: str
) -> bool:
    try:
        description = await client.describe_topic(place.topic)
    except (MagnetarError, NoAnswer):
        return True
    part = description.partitions[place.partition]
    if what != "ack":
        return any(TxnID.from_wire(one) == txn_id for one in part.open_txns)
    return any(
        one.pending_ack_count
        for one in part.subscriptions
        if one.subscription == place.subscription
    )


def over(draft: Draft) -> None:
    """Sends and acks in transactions that are over, while an older one is open."""
    random = draft.random
    topic = draft.topic("mix", 2)
    listed_ms = random.choice((50, 60_000, 60_000))
    draft.settings["coordinator"]["watermark_listed_age_ms_min"] = listed_ms
    before = _filled(draft, topic)
    client = draft.client("late")
    draft.step(
        client, "open long", slot="old", topic=topic, sends=random.choice((0, 1)), after=(before,)
    )
    for _ in range(random.choice((1, 2))):
        # So long that watermarks name it, of which copies may turn up when it has ended.
        open_s = 0.4 if listed_ms == 50 else 0.0
        delay_s = random.choice((0.0, 0.3, 0.5))
        step = draft.step(
            client,
            "late",
            topic=topic,
            partition=draft.partition(topic),
            what="send" if open_s else random.choice(("ack", "ack", random.choice(SENDS))),
            end=random.choice(("commit", "abort")),
            delay_s=delay_s,
            open_s=open_s,
        )
        for _ in range(4 if open_s else 0):
            draft.fault(
                "copies",
                step=step,
                delay_s=open_s + random.uniform(0.0, delay_s + 0.1),
                client="coordinator",
                server="broker",
                command="low_watermark",
                late_s=0.0,
                count=2,
            )
    draft.step(client, "end long", slot="old")


def strangers(draft: Draft) -> None:
    """TxnIDs that nobody issued."""
    random = draft.random
    topic = draft.topic("mix", 2)
    before = _filled(draft, topic)
    client = draft.client("stranger")
    for _ in range(random.choice((1, 2))):
        draft.step(
            client,
            "stranger",
            topic=topic,
            partition=draft.partition(topic),
            what=random.choice(("ack", random.choice(SENDS), random.choice(SENDS))),
            kind=random.choice(("tcid", "incarnation", "counter", "soon")),
            after=(before,),
        )


def _filled(draft: Draft, topic: str) -> int:
    client = draft.client("filler")
    return draft.step(
        client,
        "plain",
        writer="w",
        settings={"topic": topic},
        partitions=list(range(draft.topics[topic])) * 2,
        wait=True,
    )


VERBS: dict[str, Verb] = {
    "open long": open_long,
    "end long": end_long,
    "late": late,
    "stranger": stranger,
}
