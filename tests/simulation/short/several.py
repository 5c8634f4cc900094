"""Several brokers: transactions over them, topics that come and go, and brokers that are away."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.sdk_unit import Unit
from tests.simulation.servers import broker_names
from tests.simulation.short import acks, consumers, members, producers, strangers
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import spread_faults
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb, World

from magnetar_core.errors import MagnetarError
from magnetar_core.membership.placement import shard_of

# For one message, or one transaction, of which nobody takes part that is away.
BESIDE_SECONDS_MAX = 0.6
# What a follower says to the first broker, and of what copies may come late.
FOLLOWERS_SAY = ("follow_directory", "create_topic", "delete_topic", "take_incarnation")


async def beside(
    actor: Actor,
    step: Step,
    *,
    topic: str,
    settings: dict[str, Any],
    count: int,
    gap_s: float,
    away: str,
) -> None:
    """Messages and transactions while a broker is away, on partitions of the others.

    Args:
        away: that one; "": none, yet.
    """
    world = actor.world
    writer = await actor.writer("w", **settings)
    # A plain one for each, so that every link is there.
    keepers = {
        number: world.broker_names[shard_of(world.topic_ids[topic], number)]
        for number in range(world.script.topics[topic])
    }
    partitions = [number for number, keeper in keepers.items() if keeper != away]
    if not partitions:
        return
    client = await actor.client()
    for number in range(count):
        partition = partitions[number % len(partitions)]
        _note_acquaintances(world)
        serves, asked_at = keepers[partition] in world.brokers_serving, world.loop.time()
        await writer.plain(partition, wait=True)
        if serves:
            _check_soon(actor, "a message", away, asked_at)
        _note_acquaintances(world)
        are_told = {keepers[one] for one in partitions} <= world.brokers_told
        asked_at = world.loop.time()
        unit = Unit(world, await client.begin_transaction(5.0), actor.name)
        try:
            for one in partitions:
                await unit.send(writer, one, wait=False)
        except MagnetarError:
            await unit.abort()
            continue
        await commit(actor, unit, attempts=3)
        if are_told:
            _check_soon(actor, "a transaction", away, asked_at)
        await asyncio.sleep(gap_s)


def _note_acquaintances(world: World) -> None:
    """Remember which brokers serve, and which have heard of every coordinator's transactions.

    A follower with a new store serves nobody before it has met the first broker, and coordinators
    tell it of transactions within a second after that. Both are kept: once is for good.
    """
    tcids = range(len(world.coordinators))
    for one in world.brokers:
        if not one.ready.is_set():
            continue
        broker = one.server
        if getattr(broker.directory.guard, "is_accepted", True):
            world.brokers_serving.add(one.name)
        if all(broker.environment.watermarks.find(tcid) is not None for tcid in tcids):
            world.brokers_told.add(one.name)


def _check_soon(actor: Actor, what: str, away: str, asked_at: float) -> None:
    """Check how long something took whose brokers were able to do it when it was asked for."""
    if not away:
        return
    world = actor.world
    nodes = [actor.name, *(one for one in world.server_names if one != away)]
    calm = world.calm.seconds(nodes, asked_at)
    if calm > BESIDE_SECONDS_MAX:
        world.history.violation(
            "time", f"{what} of {actor.name} took {calm:.3f} calm seconds, with {away} away"
        )
    world.provoked["beside a broker that is away"] += 1


def several_brokers(draft: Draft) -> None:
    """Some of everything, over the partitions of two or three brokers."""
    random = draft.random
    draft.broker_count = random.choice((2, 2, 3))
    draft.coordinator_count = random.choice((1, 1, 2))
    topic = draft.topic("mix", random.choice((2, 3, 4)))
    draft.topic("in", random.choice((2, 3)))
    parts = [_transactions, _lives, _away, _taking]
    parts += [acks.by_hand, members.identities, strangers.over, consumers.crowd]
    weights = [4, 4, 2, 2, 1, 1, 1, 1]
    for part in dict.fromkeys(random.choices(parts, weights, k=random.choice((1, 2, 2, 3)))):
        fault_count = len(draft.faults)
        part(draft)
        if part not in (_lives, _away):
            spread_faults(draft, random, since=fault_count)
    for _ in range(random.choice((0, 0, 1, 2))):
        _disturb_directory(draft)
    administrator = draft.client("administrator")
    draft.step(administrator, "same everywhere", closing=True)
    assert draft.topics[topic] > 1


def _transactions(draft: Draft) -> None:
    """Transactions over several brokers, one of which falls while they are being ended."""
    random = draft.random
    client = draft.client("producer")
    settings = {
        f"w{number}": producers.writer_settings(random, topic)
        for number, topic in enumerate(("in", "mix"))
    }
    for _ in range(random.randint(4, 8)):
        producers.one_step(draft, client, settings)
        if random.random() < 0.3:
            draft.fault(
                "crash",
                step=len(draft.steps),
                delay_s=random.uniform(0.0, 0.03),
                server=random.choice(broker_names(draft.broker_count)),
                power_loss=random.random() < 0.7,
                in_write_s=random.choice((0.0, 0.01)),
                down_s=round(random.uniform(0.01, 1.0), 3),
            )


def _lives(draft: Draft) -> None:
    random = draft.random
    for _ in range(random.choice((1, 2))):
        client = draft.client("administrator")
        for _ in range(random.choice((1, 2))):
            rounds = random.randint(1, 4)
            step = draft.step(
                client,
                "topic lives",
                partitions=[random.choice((1, 2, 3, 4)) for _ in range(rounds)],
                made_at=[random.randrange(3) for _ in range(rounds)],
                deleted_at=[random.randrange(3) for _ in range(rounds)],
                held=[random.choice(("", "", "commit", "abort", "race")) for _ in range(rounds)],
            )
            if random.random() < 0.3:
                # It waits for the one who keeps the directory.
                draft.fault(
                    "away",
                    step=step,
                    delay_s=random.uniform(0.0, 0.05),
                    server="broker",
                    seconds=round(random.uniform(0.1, 2.0), 3),
                    silent=random.random() < 0.3,
                )
            if random.random() < 0.5:
                verb, seconds = random.choice(
                    (
                        ("cut off", random.uniform(1.5, 4.0)),
                        ("slow follower", random.uniform(0.1, 0.7)),
                    )
                )
                draft.step(
                    client,
                    verb,
                    follower=random.randrange(2),
                    partitions=random.choice((1, 2, 3)),
                    seconds=round(seconds, 3),
                )
        draft.step(client, "same everywhere", closing=True)


def _away(draft: Draft) -> None:
    """One broker is away for long, and the others go on."""
    random = draft.random
    topic = "mix"
    away = random.choice(broker_names(draft.broker_count))
    client = draft.client("producer")
    settings = {"topic": topic, "linger_ms": 0.0, "batch_messages_max": random.choice((1, 8))}
    common: dict[str, Any] = {"topic": topic, "settings": settings}
    draft.step(client, "beside", count=1, gap_s=0.0, away="", **common)
    step = draft.step(
        client,
        "beside",
        count=random.randint(4, 8),
        gap_s=random.choice((0.0, 0.05, 0.3)),
        away=away,
        **common,
    )
    draft.fault("away", step=step, server=away, seconds=10.0, silent=random.random() < 0.3)
    if random.random() < 0.4:
        # It comes back alone: what it keeps it serves, whoever is away.
        others = [one for one in broker_names(draft.broker_count) if one != away]
        draft.fault(
            "crash",
            step=step,
            delay_s=random.uniform(0.1, 1.0),
            server=random.choice(others),
            power_loss=random.random() < 0.7,
            down_s=round(random.uniform(0.01, 0.5), 3),
        )


def _taking(draft: Draft) -> None:
    """Inputs of all brokers are acknowledged in transactions."""
    random = draft.random
    type = random.choice(("exclusive", "failover", "shared", "key_shared"))
    settings = consumers.subscription(draft, "mix", "over", type=type)
    before = consumers.filled(draft, "mix", random.randint(6, 16))
    client = draft.client("consumer")
    for number in range(random.randint(3, 5)):
        draft.step(
            client,
            "take",
            consumer="c",
            settings=settings,
            count=random.choice((3, 10)),
            way=random.choice(("many", "each")),
            end=random.choice(("abort", "commit", "commit")),
            after=(before,) if number == 0 else (),
        )
    consumers.feed(draft, "mix", random.randint(1, 4))
    draft.step(client, "drain", consumer="c", settings=settings, closing=True)


def _disturb_directory(draft: Draft) -> None:
    """Something goes wrong between a follower and the first broker."""
    random = draft.random
    steps = [one.number for one in draft.steps if not one.closing]
    follower = random.choice(broker_names(draft.broker_count)[1:])
    ends: dict[str, Any] = {"client": follower, "server": "broker"}
    brief = round(random.choice((random.uniform(0.02, 0.3), random.uniform(0.3, 3.0))), 3)
    what: dict[str, dict[str, Any]] = {
        "half-open": {"way": random.choice(("requests", "answers", "both")), "seconds": brief},
        "link": {"late": random.random() < 0.5},
        "partition": {"seconds": brief},
        "copies": {
            "command": random.choice(FOLLOWERS_SAY),
            "late_s": random.choice((0.0, 0.05, 0.5)),
            "count": random.randint(1, 3),
        },
    }
    kind = random.choice(list(what))
    draft.fault(
        kind, step=random.choice(steps), delay_s=random.uniform(0.0, 0.3), **ends, **what[kind]
    )


VERBS: dict[str, Verb] = {"beside": beside}
