"""Consumers in a hurry: they end a transaction right after an ack that they have not waited for,
acknowledge here and there, and give back what they have just acknowledged."""

from __future__ import annotations

from typing import Any

from tests.simulation.sdk_unit import Unit
from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import TYPES, feed, filled, subscription
from tests.simulation.short.consuming import (
    ack_in,
    acknowledges,
    consumer_of,
    cursor_of,
    expect_again,
    receive,
)
from tests.simulation.short.draft import Draft
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import MagnetarError
from magnetar_core.wire import common_pb2


async def take_hastily(
    actor: Actor,
    step: Step,
    *,
    consumer: str,
    settings: dict[str, Any],
    count: int,
    waits_for: int,
    end: str,
) -> None:
    """Receive, acknowledge all of it in one transaction, and end that at once.

    Args:
        waits_for: of so many messages the acks are confirmed before.
    """
    made = await consumer_of(actor, consumer, settings)
    messages = await receive(actor, made, count)
    if not messages:
        return
    client = await actor.client()
    unit = Unit(actor.world, await client.begin_transaction(3.0), actor.name)
    confirmed, others = messages[:waits_for], messages[waits_for:]
    try:
        if confirmed:
            await ack_in(actor, unit, made, settings["subscription"], confirmed, "many")
        acknowledges(actor, unit, made, settings["subscription"], others)
        made.ack_nowait(others, txn=unit.txn)
    except MagnetarError:
        await unit.abort()
        return
    actor.world.provoked["ended hastily"] += 1
    if end == "commit":
        if await commit(actor, unit, attempts=3):
            for message in others:
                cursor = cursor_of(message, settings["subscription"])
                actor.world.asked_wiretap.check_acked(cursor, [message.offset], unit.txn.txn_id)
        return
    await unit.abort()
    if unit.record.decision == common_pb2.ABORT:
        now = actor.world.loop.time()
        await expect_again(actor, made, settings, unit, messages, since=now, alone=True)


async def scatter(
    actor: Actor,
    step: Step,
    *,
    consumer: str,
    settings: dict[str, Any],
    count: int,
    share: float,
    repents: bool,
) -> None:
    """Acknowledge some of what there is, here and there, and give the rest back.

    Args:
        share: of the messages that are acknowledged.
        repents: it gives these back, too, when their acks are on their way: too late.
    """
    world, random = actor.world, actor.random(f"step/{step.number}")
    made = await consumer_of(actor, consumer, settings)
    messages = await receive(actor, made, count)
    some = [one for one in messages if random.random() < share]
    for message in some:
        world.history.ack(cursor_of(message, settings["subscription"]), [message.offset], None)
    for message in some:
        made.ack_nowait(message)
    if repents:
        made.nack_many(some)
    made.nack_many([one for one in messages if one not in some])
    await made.flush_acks()
    for message in some:
        cursor = cursor_of(message, settings["subscription"])
        world.asked_wiretap.check_acked(cursor, [message.offset])
    world.provoked["acked here and there"] += len(some)


def hasty(draft: Draft) -> None:
    """One consumer that waits for nothing, while servers take their time."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(draft, topic, "hasty", type=random.choice(("exclusive", *TYPES)))
    if random.random() < 0.5:
        draft.settings["constants"][
            "magnetar.messaging.acknowledging.acks:RANGES_PER_COMMAND_MAX"
        ] = random.choice((1, 2, 5))
    before = filled(draft, topic, random.randint(8, 24))
    client = draft.client("consumer")
    common: dict[str, Any] = {"consumer": "c", "settings": settings}
    for number in range(random.randint(3, 6)):
        common["after"] = (before,) if number == 0 else ()
        delay_s = random.choice((0.0, random.uniform(0.0, 0.05)))
        if random.random() < 0.6:
            taken = draft.step(
                client,
                "take hastily",
                count=random.choice((2, 6, 20)),
                waits_for=random.choice((0, 1, 3)),
                end=random.choice(("abort", "abort", "commit")),
                **common,
            )
            if random.random() < 0.4:
                # The end comes late to the broker.
                draft.fault(
                    "partition",
                    step=taken,
                    delay_s=delay_s,
                    client="coordinator",
                    server="broker",
                    seconds=round(random.uniform(0.05, 0.6), 3),
                )
        else:
            scattered = draft.step(
                client,
                "scatter",
                count=random.choice((4, 20)),
                share=random.choice((0.3, 0.7)),
                repents=random.random() < 0.5,
                **common,
            )
            if random.random() < 0.5:
                draft.fault(
                    "disk stall",
                    step=scattered,
                    server="broker",
                    sync_s=random.choice((0.03, 0.1)),
                    seconds=0.2,
                )
    if random.random() < 0.5:
        feed(draft, topic, random.randint(1, 3))
    del common["after"]
    draft.step(client, "drain", closing=True, **common)


VERBS: dict[str, Verb] = {"take hastily": take_hastily, "scatter": scatter}
