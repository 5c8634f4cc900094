"""What a disk has damaged: readers and consumers are told of exactly that, and an administrator
has everybody go on behind it.

All of it happens on a topic of its own. Whatever else a history holds goes on as if nothing were.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tests.simulation.damaged_reads import WAYS, Stored
from tests.simulation.raw import NoAnswer, messages_of
from tests.simulation.short.actors import HALF_OPEN_SECONDS_MAX, Actor
from tests.simulation.short.consumers import filled, subscription
from tests.simulation.short.consuming import consumer_of, cursor_of, receive
from tests.simulation.short.draft import Draft
from tests.simulation.short.producers import one_step, writer_settings
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import DataLoss, MagnetarError
from magnetar_core.ids import TxnID

if TYPE_CHECKING:
    from tests.simulation.history import Place
    from tests.simulation.world import World

TOPIC = "harmed"


def stored(world: World, topic_id: int, partition: int) -> dict[int, Stored]:
    return world.keeper_of(topic_id, partition).damage.stored(topic_id, partition)


def damaged_offsets(world: World, topic_id: int, partition: int) -> dict[int, Stored]:
    return world.keeper_of(topic_id, partition).damage.damaged_offsets(topic_id, partition)


def may_be_given_up(world: World, place: Place, topic_id: int) -> set[int]:
    """What readers may pass over.

    While a skip is under way, nobody outside knows what of the damage it has given up already.
    """
    given_up = set(world.history.given_up.get(place, ()))
    if world.skips_asked[place]:
        given_up |= damaged_offsets(world, topic_id, place[1]).keys()
    return given_up


async def read_around(actor: Actor, step: Step, *, topic: str, partition: int) -> None:
    """Read from every offset: it is right, or DataLoss for what is damaged and not given up."""
    world, client = actor.world, actor.raw()
    topic_id = await client.lookup(topic)
    place = (topic, partition)
    known = (await client.describe_topic(topic)).partitions[partition]
    for offset in range(known.first_offset, known.end_offset):
        answered = set(world.skips_answered.get(place, ()))
        try:
            read = await client.read(topic, partition, offset)
        except DataLoss as error:
            _check_loss(world, place, topic_id, offset, error, answered)
            continue
        came = set()
        for delivered in read.batches:
            txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
            for at, value in messages_of(delivered):
                world.history.saw(topic, partition, at, value, txn_id)
                came.add(at)
        passed_over = set(range(offset, read.next_offset)) - came
        missing = passed_over - may_be_given_up(world, place, topic_id)
        if missing:
            world.history.violation(
                "2", f"a read of {place} from {offset} passes over {sorted(missing)} in silence"
            )


def _check_loss(
    world: World,
    place: Place,
    topic_id: int,
    offset: int,
    error: DataLoss,
    answered: Collection[int],
) -> None:
    """DataLoss names the first offset that was asked for and not given up; that one is damaged.

    Args:
        answered: what an administrator knew to be given up before the question left.
    """
    named = int(error.details["offset"])
    passed_over = set(range(offset, named)) - may_be_given_up(world, place, topic_id)
    found = stored(world, topic_id, place[1]).get(named)
    if named in answered:
        world.history.violation("b", f"{named} of {place} was given up, and is DataLoss again")
    if named < offset or passed_over or found is None or not found.is_damaged:
        world.history.violation("b", f"DataLoss for {named} of {place} at {offset}: {error}")
    if f"{place[0]}-partition-{place[1]}" not in str(error):
        world.history.violation("b", f"DataLoss at {place} does not say where: {error}")
    world.provoked["data loss told"] += 1


async def skip(actor: Actor, step: Step, *, topic: str, partition: int) -> None:
    """An administrator looks, then has everybody go on behind what is damaged."""
    world = actor.world
    client = await actor.client()
    topic_id = await actor.raw().lookup(topic)
    place = (topic, partition)
    given_up = world.history.given_up.setdefault(place, set())
    world.skips_under_way += 1
    try:
        damaged = damaged_offsets(world, topic_id, partition)
        looked = await client.admin.topics.skip_damaged(topic, partition, dry_run=True)
        # It may have been struck while the administrator looked.
        damaged |= damaged_offsets(world, topic_id, partition)
        _check_ranges(world, place, looked, damaged.keys())
        # An answer may get lost, and what is given up counts from here on.
        for first, last in looked:
            given_up.update(range(first, last + 1))
        world.skips_asked[place] += 1
        try:
            skipped = await client.admin.topics.skip_damaged(topic, partition)
        finally:
            world.skips_asked[place] -= 1
        # What has become visible since is damaged, too, if it was struck before.
        damaged |= damaged_offsets(world, topic_id, partition)
        _check_ranges(world, place, skipped, damaged.keys())
    except (MagnetarError, NoAnswer):
        # It may have been done all the same.
        given_up.update(damaged_offsets(world, topic_id, partition))
        raise
    finally:
        world.skips_under_way -= 1
    for first, last in skipped:
        given_up.update(range(first, last + 1))
        world.skips_answered.setdefault(place, set()).update(range(first, last + 1))
    # The answer names what this attempt has given up. Of an earlier attempt, whose answer was lost
    # with the broker, the store tells; what is not damaged, nobody may give up.
    in_store = world.keeper_of(topic_id, partition).damage.given_up(topic_id, partition)
    given_up |= in_store & damaged.keys()
    for offset in sorted(given_up & damaged.keys()):
        # It had been stored, rightly: the disk alone has lost it.
        world.history.saw(topic, partition, offset, damaged[offset].value, damaged[offset].txn_id)
    world.provoked["given up"] += sum(last - first + 1 for first, last in skipped)


def _check_ranges(
    world: World, place: Place, ranges: list[tuple[int, int]], damaged: Collection[int]
) -> None:
    whole = [
        offset
        for first, last in ranges
        for offset in range(first, last + 1)
        if offset not in damaged
    ]
    if whole:
        world.history.violation("b", f"{whole} of {place} are given up, and are not damaged")


async def consume_around(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any]
) -> None:
    """Consume what comes, until there is no more or the disk has lost what comes next."""
    world = actor.world
    received: set[tuple[int, int]] = actor.kept.setdefault(consumer, set())
    try:
        made = await consumer_of(actor, consumer, settings)
        while messages := await receive(actor, made, 4):
            for message in messages:
                world.history.ack(
                    cursor_of(message, settings["subscription"]), [message.offset], None
                )
                received.add((message.partition, message.offset))
            await made.ack_many(messages)
    except DataLoss as error:
        # It ends this consumer; the next step makes another one.
        actor.consumers.pop(consumer, None)
        topic_id = await actor.raw().lookup(settings["topic"])
        named = int(error.details["offset"])
        if not any(
            (found := stored(world, topic_id, partition).get(named)) is not None
            and found.is_damaged
            for partition in range(world.script.topics[settings["topic"]])
        ):
            world.history.violation("b", f"a consumer was told of {named}: {error}")
        world.provoked["consumer told"] += 1


async def all_consumed(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any]
) -> None:
    """At the end: consumers have had all but what was given up."""
    world, topic = actor.world, settings["topic"]
    patience_ends_at = world.loop.time() + HALF_OPEN_SECONDS_MAX
    while True:
        await consume_around(actor, step, consumer=consumer, settings=settings)
        missing = await _never_came(actor, topic, actor.kept.get(consumer, set()))
        if not missing:
            return
        # Who died on a half-open link may have some of it for a while.
        if world.loop.time() >= patience_ends_at:
            world.history.violation("2", f"{missing} of {topic} never came to {actor.name}")


async def _never_came(
    actor: Actor, topic: str, received: set[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Partitions and offsets; nothing while damage stands before them that nobody gave up."""
    world = actor.world
    description = await actor.raw().describe_topic(topic)
    world.check_description(description)
    missing: list[tuple[int, int]] = []
    for part in description.partitions:
        given_up = world.history.given_up.get((topic, part.partition), set())
        damaged = damaged_offsets(world, description.topic_id, part.partition)
        if damaged.keys() - given_up:
            return []  # Nobody has given it up, so they wait there.
    for part in description.partitions:
        given_up = world.history.given_up.get((topic, part.partition), set())
        missing += [
            (part.partition, offset)
            for offset in range(part.first_offset, part.end_offset)
            if (part.partition, offset) not in received and offset not in given_up
        ]
    return missing


def damaged_rows(draft: Draft) -> None:
    """Rows of messages get damaged while they are written, read, consumed and given up."""
    random = draft.random
    topic = draft.topic(TOPIC, 2)
    # What lies in memory yet is not read from the disk.
    draft.settings["broker"]["tail_bytes_max"] = random.choice((0, 0, 300))
    before = filled(draft, topic, random.randint(4, 10))
    producer = draft.client("producer")
    settings = {"w": writer_settings(random, topic)}
    reader, consumer, keeper = (draft.client(one) for one in ("reader", "consumer", "keeper"))
    taking = subscription(draft, topic, "taking", type=random.choice(("exclusive", "shared")))
    struck = []
    for _ in range(random.randint(3, 5)):
        one_step(draft, producer, settings)
        struck.append(len(draft.steps))
        if random.random() < 0.6:
            draft.step(
                reader,
                "read around",
                topic=topic,
                partition=draft.partition(topic),
                after=(before, len(draft.steps)),
            )
        if random.random() < 0.6:
            draft.step(consumer, "consume around", consumer="c", settings=taking, after=(before,))
        if random.random() < 0.3:
            draft.step(
                keeper,
                "skip",
                topic=topic,
                partition=draft.partition(topic),
                after=(len(draft.steps),),
            )
    for _ in range(random.randint(1, 3)):
        draft.fault(
            "damage",
            step=random.choice(struck),
            delay_s=random.choice((0.0, 0.01, random.uniform(0.0, 0.5))),
            topic=topic,
            partition=draft.partition(topic),
            count=random.choice((1, 1, 2, 5)),
            way=random.choice(WAYS),
        )
    if random.random() < 0.4:
        draft.fault(
            "no rows",
            step=random.choice(struck),
            delay_s=random.uniform(0.0, 0.3),
            server=random.choice(("broker", "broker", "coordinator")),
            count=random.choice((1, 3)),
            crashes=random.random() < 0.7,
            seconds=round(random.uniform(0.1, 2.0), 3),
        )
    for partition in range(draft.topics[topic]):
        draft.step(reader, "read around", topic=topic, partition=partition, closing=True)
        draft.step(consumer, "skip", topic=topic, partition=partition, closing=True)
    draft.step(consumer, "all consumed", consumer="c", settings=taking, closing=True)


VERBS: dict[str, Verb] = {
    "read around": read_around,
    "skip": skip,
    "consume around": consume_around,
    "all consumed": all_consumed,
}
