"""Topics that the history does not know message by message: dead letters, and messages too large
for a batch. Each is read to its end and held against what it may,
must and must not hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.sdk_unit import Unit
from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import filled, subscription
from tests.simulation.short.consuming import backlog, consumer_of, cursor_of, receive
from tests.simulation.short.draft import Draft
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar.messaging.consuming.dead_letters import ORIGIN_SUBSCRIPTION, REDELIVERY_COUNT
from magnetar_core.errors import MagnetarError, TopicExists

# Of these, one in so many is poison: whoever is given it fails.
POISON_EVERY = 5
DRAIN_SECONDS_MAX = 60.0


@dataclass
class Tally:
    """What a topic may hold; of dead letters, what it may hold from one subscription.

    Attributes:
        may, must, must_not: values; each may be there once at most.
        inputs: the message of which a value was made, in the order that outputs keep.
        redeliveries_max: of dead letters: how often each was to be delivered again before.
    """

    may: dict[bytes, None] = field(default_factory=dict)
    must: dict[bytes, None] = field(default_factory=dict)
    must_not: dict[bytes, None] = field(default_factory=dict)
    seen: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    redeliveries_max: int = -1


def tally(actor: Actor, topic: str, subscription: str | None = None) -> Tally:
    """Find the tally of a topic.

    Args:
        subscription: only of dead letters from this one; others may share the topic.
    """
    return actor.world.tallies.setdefault((topic, subscription), Tally())


def is_poison(value: bytes) -> bool:
    digits = value[1:].partition(b".")[0]
    return digits.isdigit() and int(digits) % POISON_EVERY == 0


def acknowledges_by_itself(actor: Actor, topic: str, subscription: str) -> None:
    """The SDK acknowledges there in transactions that nobody here knows."""
    for partition in range(actor.world.script.topics[topic]):
        actor.world.history.unchecked_cursors.add((topic, partition, subscription))


async def make_topic(actor: Actor, name: str, partitions: int) -> None:
    client = await actor.client()
    try:
        await client.admin.topics.create(name, partitions=partitions)
    except TopicExists:
        pass


# Messages too large for a batch.


async def large(
    actor: Actor,
    step: Step,
    *,
    topic: str,
    partition: int,
    sizes: list[int],
    end: str,
    whole_bytes_max: int,
) -> None:
    """A transaction of messages that travel in parts, beside those of other tasks."""
    await make_topic(actor, topic, 2)
    known = tally(actor, topic)
    writer = await actor.writer(
        f"large-{topic}", topic, whole_bytes_max=whole_bytes_max, batch_bytes_max=whole_bytes_max
    )
    client = await actor.client()
    unit = Unit(actor.world, await client.begin_transaction(3.0), actor.name)
    values = []
    try:
        for number, size in enumerate(sizes):
            text = b"%d.%d.%d/" % (step.number, actor.node.life, number)
            value = (text * (size // len(text) + 1))[: max(size, len(text))]
            known.may[value] = None
            values.append(value)
            writer.producer.send_nowait(value, partition=partition, txn=unit.txn)
            await asyncio.sleep(0.0)
    except MagnetarError:
        await unit.abort()
        return
    if end == "commit" and await commit(actor, unit, attempts=3):
        known.must.update(dict.fromkeys(values))
        actor.world.provoked["large messages"] += len(values)
    elif end == "abort":
        await unit.abort()
        known.must_not.update(dict.fromkeys(values))


async def take_large(
    actor: Actor, step: Step, *, topic: str, settings: dict[str, Any], count: int
) -> None:
    """Consume large messages: each comes whole, or not at all."""
    await make_topic(actor, topic, 2)
    consumer = await consumer_of(actor, "large", settings)
    known = tally(actor, topic)
    for _ in range(count):
        for message in await consumer.receive_batch(4, timeout_s=0.3):
            if message.value not in known.may:
                actor.world.history.violation(
                    "1", f"{topic}: {message.value[:40]!r} of {len(message.value)} was never sent"
                )
            actor.world.provoked["large messages consumed"] += 1
            if actor.random(f"{step.number}").random() < 0.3:
                consumer.nack(message)
            else:
                await consumer.ack(message)


# Dead letters.


async def reject(
    actor: Actor, step: Step, *, settings: dict[str, Any], dead: str, redeliveries: int, rounds: int
) -> None:
    """Consume; poison is given back until it moves to another topic, exactly once.

    Each subscription moves its own copy of a message, also where several share the other topic.
    """
    world = actor.world
    known = tally(actor, dead, settings["subscription"])
    known.redeliveries_max = redeliveries
    acknowledges_by_itself(actor, settings["topic"], settings["subscription"])
    policy = magnetar.DeadLetterPolicy(redeliveries_max=redeliveries, topic=dead)
    consumer = await consumer_of(actor, "rejecting", {**settings, "dead_letter": policy})
    deadline = world.loop.time() + DRAIN_SECONDS_MAX
    for _ in range(rounds):
        messages = await receive(actor, consumer, 8, timeout_s=0.4)
        for message in messages:
            known.may[message.value] = None
            if is_poison(message.value):
                consumer.nack(message)
            else:
                cursor = cursor_of(message, settings["subscription"])
                world.history.ack(cursor, [message.offset], None)
                await consumer.ack(message)
        if world.loop.time() > deadline:
            break
        if not messages and step.closing and not await backlog(actor, settings):
            break
    if step.closing:
        await consumer.close()
        # What comes again for other reasons counts as given back, too.
        known.may.update(dict.fromkeys(world.history.sent))
        world.final_checks.append(
            lambda trimmed: _check_poison(actor, settings, dead, complete=not trimmed)
        )
        await read_out(actor, dead, settings["subscription"])


def _check_poison(actor: Actor, settings: dict[str, Any], dead: str, *, complete: bool) -> None:
    """All poison of a topic lies among the dead letters of a subscription.

    Args:
        complete: retention has removed nothing: there may be poison that was gone before anybody
            subscribed.
    """
    world, topic, subscription = actor.world, settings["topic"], settings["subscription"]
    known = tally(actor, dead, subscription)
    for (name, _), log in world.history.seen.items():
        for value in log.values() if name == topic else ():
            # What the probe at the end has sent came too late.
            late = world.history.sent[value].producer.startswith("probe")
            if complete and is_poison(value) and not late and value not in known.seen:
                text = f"{value!r} of {topic} is no dead letter of {subscription} in {dead}"
                world.history.violation("6", text)
    world.provoked["dead letters"] += len(known.seen)


async def read_out(actor: Actor, topic: str, subscription: str | None = None) -> None:
    """Read a topic to its end, and hold it against what it may hold.

    Others may have read it to its end before: each message is still where it was.

    Args:
        subscription: as for tally.
    """
    known, history = tally(actor, topic, subscription), actor.world.history
    client = await actor.client()
    description = await client.admin.topics.describe(topic)
    for partition in range(len(description.partitions)):
        messages = [message async for message in client.read(topic, partition)]
        offsets = [message.offset for message in messages]
        if offsets != sorted(set(offsets)):
            history.violation("4", f"{topic}: a read of {partition} has {offsets}")
        for message in messages:
            value, place = message.value, (partition, message.offset)
            if subscription is not None:
                origin = message.properties[ORIGIN_SUBSCRIPTION]
                if (topic, origin) not in actor.world.tallies:
                    history.violation("1", f"{topic}: {value[:40]!r} comes from nowhere: {origin}")
                if origin != subscription:
                    continue
            before = known.seen.get(value, place)
            if before != place:
                history.violation("4", f"{topic}: {value[:40]!r} is at {before} and at {place}")
            if value not in known.may:
                history.violation("1", f"{topic}: {value[:40]!r} was never sent whole")
            if value in known.must_not:
                history.violation("3", f"{topic}: {value[:40]!r} was aborted, and is visible")
            if known.redeliveries_max >= 0:
                count = int(message.properties[REDELIVERY_COUNT])
                if count <= known.redeliveries_max:
                    text = f"{value[:40]!r} moves to {topic} after {count} redeliveries"
                    history.violation("docs", f"{text}, and may have {known.redeliveries_max}")
            known.seen[value] = place
    for value in known.must:
        if value not in known.seen:
            history.violation("2", f"{topic}: {value[:40]!r} was committed, and is not there")


async def read_large(actor: Actor, step: Step, *, topic: str) -> None:
    await make_topic(actor, topic, 2)
    await read_out(actor, topic)


def large_messages(draft: Draft) -> None:
    """Two tasks send messages in parts, on one partition and in transactions of their own."""
    random = draft.random
    draft.settings["constants"]["magnetar.messaging.sending.partition_sender:PART_BYTES_MAX"] = (
        random.choice((64, 200))
    )
    client, consumer = draft.client("producer"), draft.client("consumer")
    settings = subscription(
        draft, "bulk", "large", type=random.choice(("exclusive", "shared", "failover"))
    )
    for _ in range(random.randint(4, 8)):
        draft.step(
            client,
            "large",
            task=random.randrange(2),
            topic="bulk",
            partition=random.randrange(2),
            sizes=[random.choice((10, 300, 700, 1_500)) for _ in range(random.randint(1, 3))],
            end=random.choice(("commit", "commit", "commit", "abort")),
            whole_bytes_max=200,
            pause_s=random.choice((0.0, 0.02)),
        )
        draft.step(
            consumer, "take large", topic="bulk", settings=settings, count=random.randint(1, 3)
        )
    draft.step(client, "read large", topic="bulk", closing=True)


def dead_letters(draft: Draft) -> None:
    """Poison moves to a topic of its own, once, whoever crashes."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(draft, topic, "reject", type=random.choice(("shared", "key_shared")))
    before = filled(draft, topic, random.randint(8, 20))
    common: dict[str, Any] = {
        "settings": settings,
        "dead": "letters",
        "redeliveries": random.choice((0, 1, 2)),
    }
    for _ in range(random.choice((1, 2))):
        client = draft.client("consumer")
        for _ in range(random.randint(1, 3)):
            draft.step(
                client,
                "reject",
                rounds=random.randint(2, 5),
                after=(before,),
                pause_s=random.choice((0.0, 0.1)),
                **common,
            )
    draft.step(client, "reject", rounds=200, closing=True, **common)


VERBS: dict[str, Verb] = {
    "large": large,
    "take large": take_large,
    "read large": read_large,
    "reject": reject,
}
