"""Client processes that speak the protocol by hand: observers, inspectors, sloppy clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation import ack_tricks, end_tricks, other_tricks, settling_tricks
from tests.simulation.nodes import ClientNode
from tests.simulation.raw import NoAnswer
from tests.simulation.raw_unit import RawUnit, ask_status, raw_client, read_new

from magnetar_core.errors import (
    MagnetarError,
    OutOfRange,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

TRICKS = (
    end_tricks.selective_commit,
    end_tricks.surplus,
    end_tricks.orphan,
    end_tricks.lost_messages,
    end_tricks.zombie_sender,
    ack_tricks.zombie_acker,
    ack_tricks.late_subscription,
    end_tricks.contrary_ends,
    end_tricks.end_without_counts,
    end_tricks.end_of_nothing,
    other_tricks.deletion,
    ack_tricks.acks_in_doubt,
    ack_tricks.counted_acks,
    ack_tricks.seek_back,
    end_tricks.stuck_predecessor,
    end_tricks.passed_on,
    settling_tricks.made_up,
    settling_tricks.overtaking,
)


async def observer(world: World, node: ClientNode) -> None:
    """Reads every partition, again and again: what was seen once must stay as it was."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    offsets = {place: 0 for place in world.places}
    while not node.stopping:
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
                world.note_client_failure(node, error)
                continue
            offsets[place] = max(offsets[place], following)
        await asyncio.sleep(random.uniform(0.03, 0.3))


async def inspector(world: World, node: ClientNode) -> None:
    """Asks about topics and transactions; compares with what was told before."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    while not node.stopping:
        await asyncio.sleep(random.uniform(0.2, 0.6))
        topic = random.choice(("in", "mix"))
        try:
            description = await client.describe_topic(topic)
        except MagnetarError as error:
            world.note_client_failure(node, error)
            continue
        world.check_description(description)
        known = list(world.history.transactions.values())
        for txn in random.sample(known, min(3, len(known))):
            await ask_status(world, client, txn)


async def sloppy(world: World, node: ClientNode) -> None:
    """Administrators, zombies and clients that count wrongly, by turns."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    number = 0
    while not node.stopping:
        number += 1
        trick = random.choice(world.tricks or TRICKS)
        unit = RawUnit(world, client, random, f"{node.name}.{node.life}.{number}")
        try:
            await trick(world, unit, random)
        except (MagnetarError, NoAnswer) as error:
            world.note_client_failure(node, error)
        await asyncio.sleep(random.uniform(0.0, 0.1))
