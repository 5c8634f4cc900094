"""Topics that get partitions while they are written, read, cut and subscribed to.

Whatever was confirmed is there once, wherever its key lay; every transaction is whole, in the topic
and in each cut; and a subscription misses nothing that came after it
(docs/design/0025-topics-that-change.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.simulation.raw import BROKER
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import spread_faults
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar_core.errors import GroupNotFound, MagnetarError, TopicExists
from magnetar_core.wire import topic_pb2

# From the last message that a subscription gets until it is sure that it gets no more.
SILENT_SECONDS = 5.0
OLD, GROUP = "old", "old-group"


class _Topic:
    """A topic and what was done with it, over all lives of its client.

    Attributes:
        unknown, stored, aborted: values of messages, by what is known of them.
        together: of each transaction, the values that it stored, and those that it may store.
        begun_at: when each message was first handed to the client.
        subscribed_at: when each subscription was there.
        reached: how many partitions it has at least.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.unknown: set[bytes] = set()
        self.stored: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.together: list[list[bytes]] = []
        self.begun_at: dict[bytes, float] = {}
        self.subscribed_at: dict[str, float] = {}
        self.reached = 0
        self.numbers = 0

    def value(self, now: float) -> bytes:
        self.numbers += 1
        made = b"%s/%d" % (self.name.encode(), self.numbers)
        self.begun_at[made] = now
        self.unknown.add(made)
        return made

    def settle(self, values: Iterable[bytes], known: set[bytes]) -> None:
        for value in values:
            self.unknown.discard(value)
            known.add(value)


def _topic(actor: Actor) -> _Topic:
    found = actor.kept.setdefault("growing", _Topic(f"growing-{actor.name}"))
    assert isinstance(found, _Topic)
    return found


async def make_growing(actor: Actor, step: Step, *, partitions: int) -> None:
    """Make a topic, with a subscription and a group that have nobody who reads."""
    topic, client = _topic(actor), await actor.client()
    while True:
        try:
            await client.admin.topics.create(topic.name, partitions=partitions)
        except TopicExists:
            break
        except MagnetarError:
            await asyncio.sleep(0.1)
            continue
        break
    topic.reached = partitions
    await client.admin.subscriptions.create(topic.name, OLD, initial_position="earliest")
    topic.subscribed_at[OLD] = 0.0
    member = await client.consumer_group(GROUP, [topic.name], initial_position="earliest")
    await member.joined()
    await member.close()
    described = await client.admin.groups.describe(GROUP)
    if described.summary.partitions == partitions:
        topic.subscribed_at[GROUP] = 0.0


async def grow(actor: Actor, step: Step, *, by: list[int], at: list[int]) -> None:
    """Give the topic partitions, at one broker after the other, with other settings in between."""
    world, topic, client = actor.world, _topic(actor), actor.raw()
    random = actor.random(f"grow/{step.number}/{actor.node.life}")
    names = world.broker_names
    for more, place in zip(by, at, strict=True):
        await asyncio.sleep(random.uniform(0.0, 0.4))
        wanted = topic.reached + more
        command = topic_pb2.CommandAlterTopic(
            topic=topic.name,
            partitions=wanted,
            keys_move=True,
            retention_bytes=random.choice((0, 1 << 30)),
            call_token=random.getrandbits(64) | 1,
        )
        await client.insist(BROKER, command, address=names[place % len(names)])
        topic.reached = wanted
        world.provoked["topics grown"] += 1


async def write_growing(actor: Actor, step: Step, *, rounds: int, keys: int) -> None:
    """Send by key, alone and in transactions, by a producer that hears of partitions as it may."""
    world, topic, client = actor.world, _topic(actor), await actor.client()
    random = actor.random(f"write/{step.number}/{actor.node.life}")
    producer = await client.create_producer(topic.name, batch_messages_max=2, linger_ms=0.0)

    def draw() -> tuple[bytes, bytes]:
        return topic.value(world.loop.time()), b"key-%d" % random.randrange(keys)

    for _ in range(rounds):
        value, key = draw()
        try:
            await producer.send(value, key)
            topic.settle([value], topic.stored)
        except MagnetarError as error:
            world.note_client_failure(actor.node, error)
        sent = [draw() for _ in range(random.randint(2, 4))]
        values = [value for value, _ in sent]
        topic.together.append(values)
        before, aborts = producer.partition_count, random.random() < 0.2
        try:
            async with client.transaction(5.0) as txn:
                for value, key in sent:
                    await producer.send(value, key, txn=txn)
                    await asyncio.sleep(random.choice((0.0, 0.0, 0.1)))
                if aborts:
                    await txn.abort()
            topic.settle(values, topic.aborted if aborts else topic.stored)
        except MagnetarError as error:
            world.note_client_failure(actor.node, error)
        world.provoked["transactions over a growth"] += producer.partition_count != before
        await asyncio.sleep(random.uniform(0.0, 0.1))


async def look_at_growing(actor: Actor, step: Step, *, rounds: int) -> None:
    """Take cuts and read them; make subscriptions, of which some come while the topic grows."""
    world, topic, client = actor.world, _topic(actor), await actor.client()
    random = actor.random(f"look/{step.number}/{actor.node.life}")
    for number in range(rounds):
        await asyncio.sleep(random.uniform(0.0, 0.3))
        name = f"new-{step.number}-{actor.node.life}-{number}"
        try:
            await client.admin.subscriptions.create(topic.name, name, initial_position="latest")
            topic.subscribed_at[name] = world.loop.time()
            known, whole = set(topic.stored), [list(one) for one in topic.together]
            cut = await client.cut(topic.name)
            seen = [one.value async for one in client.read(topic.name, at=cut)]
        except MagnetarError as error:
            world.note_client_failure(actor.node, error)
            continue
        _check_seen(actor, f"cut {number}", seen, known, whole)
        world.provoked["cuts of a growing topic"] += 1


def _check_seen(
    actor: Actor, what: str, seen: list[bytes], known: set[bytes], whole: list[list[bytes]]
) -> None:
    violation, found = actor.world.history.violation, set(seen)
    if len(found) != len(seen):
        violation("topics", f"{what} has messages twice")
    if missing := known - found:
        violation("topics", f"{what} lacks {sorted(missing)}, which were confirmed before")
    if torn := [one for one in whole if 0 < len(found.intersection(one)) < len(one)]:
        violation("topics", f"{what} tears {torn[0]}")
    if wrong := found & _topic(actor).aborted:
        violation("topics", f"{what} has {sorted(wrong)}, which were aborted")


async def check_grown(actor: Actor, step: Step) -> None:
    """All is there once, in as many partitions as there are, and comes to every subscription."""
    world, topic, client = actor.world, _topic(actor), await actor.client()
    if not topic.reached:
        return  # The client died before it had made it.
    violation = world.history.violation
    offsets = await client.admin.topics.list_offsets(topic.name)
    if len(offsets.partitions) < topic.reached:
        violation("topics", f"{topic.name} has {len(offsets.partitions)} partitions")
    messages = [one async for one in client.read(topic.name)]
    values = [one.value for one in messages]
    _check_seen(actor, topic.name, values, topic.stored, topic.together)
    places = {one.value: (one.partition, one.key) for one in messages}
    for together in topic.together:
        found = [places[value] for value in together if value in places]
        if len(dict.fromkeys(found)) != len(dict.fromkeys(key for _, key in found)):
            violation("topics", f"a key of {together} lies in two partitions")
    for name, since in topic.subscribed_at.items():
        wanted = {value for value in values if topic.begun_at[value] >= since}
        got = await _drain(client, topic.name, name, wanted)
        if missing := wanted - got:
            violation("topics", f"subscription {name} of {topic.name} misses {sorted(missing)}")
        world.provoked["subscriptions of a grown topic"] += 1
    try:
        await client.admin.groups.delete(GROUP)
    except GroupNotFound:
        pass
    for one in (await client.admin.topics.describe(topic.name)).partitions:
        if GROUP in (each.subscription for each in one.subscriptions):
            violation("topics", f"a deleted group has a cursor on partition {one.partition}")


async def _drain(client: magnetar.Client, topic: str, name: str, wanted: set[bytes]) -> set[bytes]:
    consumer: Any
    if name == GROUP:
        consumer = await client.consumer_group(GROUP, [topic])
    else:
        consumer = await client.subscribe(topic, name)
    got: set[bytes] = set()
    try:
        while not wanted <= got:
            message = await consumer.receive(timeout_s=SILENT_SECONDS)
            await consumer.ack(message)
            got.add(message.value)
    except TimeoutError:
        pass
    await consumer.close()
    return got


def growing_topics(draft: Draft) -> None:
    """A topic that grows under load, beside whatever goes wrong."""
    random = draft.random
    draft.broker_count = max(draft.broker_count, random.choice((1, 2, 3, 3)))
    draft.settings["client"]["topic_refresh_ms"] = random.choice((50, 200, 1_000))
    client = draft.client("grower")
    made = draft.step(client, "make growing", partitions=random.choice((1, 1, 2, 3)))
    rounds = random.choice((1, 2, 4))
    steps = [
        draft.step(
            client,
            "grow",
            task=1,
            after=(made,),
            by=[random.choice((1, 1, 2, 3)) for _ in range(rounds)],
            at=[random.randrange(3) for _ in range(rounds)],
        )
    ]
    for task in range(2, 4):
        steps.append(
            draft.step(
                client,
                "write growing",
                task=task,
                after=(made,),
                rounds=random.randint(4, 10),
                keys=random.choice((2, 10)),
            )
        )
    draft.step(client, "look at growing", task=4, after=(made,), rounds=random.randint(2, 5))
    fault_count = len(draft.faults)
    for _ in range(random.choice((0, 1, 2, 3))):
        draft.fault(
            "crash",
            step=random.choice(steps),
            delay_s=random.uniform(0.0, 0.5),
            server="broker",
            power_loss=random.random() < 0.7,
            in_write_s=random.choice((0.0, 0.01)),
            down_s=round(random.uniform(0.01, 1.0), 3),
        )
    spread_faults(draft, random, since=fault_count)
    draft.step(client, "check grown", closing=True)


VERBS: dict[str, Verb] = {
    "make growing": make_growing,
    "grow": grow,
    "write growing": write_growing,
    "look at growing": look_at_growing,
    "check grown": check_grown,
}
