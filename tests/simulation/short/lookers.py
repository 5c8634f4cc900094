"""Who looks on: at every partition, at what servers say of themselves, and at consistent cuts."""

from __future__ import annotations

import asyncio

from tests.simulation.raw_unit import ask_status, read_new
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.surveys import take_and_read
from tests.simulation.world import Verb

from magnetar_core.errors import MagnetarError, OutOfRange

TOPICS = ("in", "mix", "out")


async def observe(actor: Actor, step: Step, *, rounds: int) -> None:
    """Read every partition, again and again: what was seen once must stay as it was."""
    world, client = actor.world, actor.raw()
    random = actor.random(f"observe/{step.number}/{actor.node.life}")
    offsets = dict.fromkeys(world.places, 0)
    for _ in range(rounds):
        for place in world.places:
            start = offsets[place]
            if random.random() < 0.2:
                start = random.randint(0, start)
            try:
                following = await read_new(world, client, *place, start)
            except OutOfRange:
                description = await client.describe_topic(place[0])
                offsets[place] = max(start, description.partitions[place[1]].first_offset)
                continue
            except MagnetarError as error:
                world.note_client_failure(actor.node, error)
                continue
            offsets[place] = max(offsets[place], following)
        await asyncio.sleep(random.uniform(0.03, 0.3))


async def inspect(actor: Actor, step: Step, *, rounds: int) -> None:
    """Ask about topics and transactions, compare with what was told before."""
    world, client = actor.world, actor.raw()
    random = actor.random(f"inspect/{step.number}/{actor.node.life}")
    for _ in range(rounds):
        await asyncio.sleep(random.uniform(0.2, 0.6))
        world.check_servers()
        try:
            description = await client.describe_topic(random.choice(list(world.script.topics)))
        except MagnetarError as error:
            world.note_client_failure(actor.node, error)
            continue
        world.check_description(description)
        known = list(world.history.transactions.values())
        for txn in random.sample(known, min(3, len(known))):
            await ask_status(world, client, txn)


async def survey(actor: Actor, step: Step, *, rounds: int) -> None:
    """Take cuts, read them, and read some again, as a whole and from an earlier one."""
    random = actor.random(f"survey/{step.number}/{actor.node.life}")
    client = await actor.client()
    for _ in range(rounds):
        await asyncio.sleep(random.uniform(0.0, 0.3))
        try:
            await take_and_read(actor.world, client, random)
        except MagnetarError as error:
            actor.world.note_client_failure(actor.node, error)


def lookers(draft: Draft) -> None:
    """They look on for as long as the others take, mostly."""
    _look_on(draft, "observe", 20, 40)
    _look_on(draft, "inspect", 5, 15)


def surveyors(draft: Draft) -> None:
    """Cuts of all topics, beside whatever there is."""
    _look_on(draft, "survey", 5, 20)


def _look_on(draft: Draft, verb: str, rounds_min: int, rounds_max: int) -> None:
    for name in TOPICS:
        draft.topic(name, 2)
    rounds = draft.random.randint(rounds_min, rounds_max)
    draft.step(draft.client(verb), verb, rounds=rounds)


VERBS: dict[str, Verb] = {"observe": observe, "inspect": inspect, "survey": survey}
