"""Transactions of a producer that follow each other, ended in any order (invariant 5, rule k)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.raw import BROKER, NoAnswer, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import InvalidTxnState, MagnetarError
from magnetar_core.wire import common_pb2

# Frames that a program may put on the stack beside those of the loop. Enough for all that does not
# go deeper with each transaction; so 70 of them show what would take 700.
STACK_FRAMES_MAX = 110


async def chain_begin(
    actor: Actor, step: Step, *, chain: str, link: str, topic: str, partition: int, producer: int
) -> None:
    """The next transaction of a chain: one message, that follows what the chain has."""
    units: dict[str, RawUnit] = actor.units.setdefault(chain, {})
    unit = actor.unit(step)
    await unit.begin(60_000)
    follows = next(reversed(units.values())).txn_id if units else None
    # The order of a producer's messages is that in which it began the transactions.
    await unit.send(producer, topic, partition, follows=follows)
    position = actor.world.history.next_position()
    for message in unit.record.messages:
        message.producer = f"{actor.name}/{chain}/{producer}"
        message.position = position
    units[link] = unit


async def chain_end(actor: Actor, step: Step, *, chain: str, link: str, action: str) -> None:
    unit: RawUnit | None = actor.units.get(chain, {}).get(link)
    if unit is None:
        return
    try:
        if action == "commit":
            actor.world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
            await unit.end(unit.end_command(COMMIT, counts=unit.confirmed_counts()))
        else:
            await unit.end(unit.end_command(ABORT))
    except InvalidTxnState:
        return


async def chain_plain(
    actor: Actor,
    step: Step,
    *,
    chain: str,
    topic: str,
    partition: int,
    producer: int,
    sequence: int,
) -> None:
    """A plain message that follows the chain; it is confirmed when all of that has ended."""
    units: dict[str, RawUnit] = actor.units.get(chain, {})
    if not units:
        return
    client, history = actor.raw(), actor.world.history
    topic_id = await client.lookup(topic)
    wire = common_pb2.Partition(topic=topic, partition=partition, topic_id=topic_id)
    message = history.send(f"{actor.name}/{chain}/{producer}", topic, partition)
    follows = next(reversed(units.values())).txn_id
    command = send_command(wire, producer, sequence, [message.value], follows=follows)
    asked_at = actor.world.loop.time()
    for _ in range(100):
        try:
            await client.ask(BROKER, command, timeout=1.0)
        except NoAnswer:
            actor.world.provoked["plain parked"] += 1
        except MagnetarError as error:
            if not error.retriable:
                raise
        else:
            history.confirm(message, asked_at=asked_at)
            return
        await asyncio.sleep(0.05)


def chains(draft: Draft) -> None:
    """A few transactions on one partition, ended in any order."""
    random = draft.random
    topic = draft.topic("mix", 2)
    for number in range(random.choice((1, 1, 2))):
        one_chain(draft, f"chain{number}", topic, random.randint(4, 8))


def deep_chain(draft: Draft) -> None:
    """More transactions that follow each other than a stack has room for; the first ends last."""
    topic = draft.topic("mix", 2)
    draft.flags["stack_frames_max"] = STACK_FRAMES_MAX
    one_chain(draft, "deep", topic, draft.random.randint(70, 90))


def one_chain(draft: Draft, chain: str, topic: str, length: int) -> None:
    random = draft.random
    client = draft.client("chain")
    place: dict[str, Any] = {"topic": topic, "partition": draft.partition(topic)}
    place["producer"] = random.getrandbits(60)
    deep = length > 20
    begun = [
        draft.step(
            client,
            "chain begin",
            chain=chain,
            link=str(link),
            pause_s=0.0 if deep else random.choice((0.0, 0.01)),
            **place,
        )
        for link in range(length)
    ]
    order = list(range(length))
    if deep:
        order = [*order[1:], 0]
    else:
        random.shuffle(order)
    abort_share = 0.0 if deep else random.choice((0.0, 0.3, 0.5))
    for link in order:
        draft.step(
            client,
            "chain end",
            chain=chain,
            link=str(link),
            action="abort" if random.random() < abort_share else "commit",
            pause_s=0.0 if deep else random.choice((0.0, 0.0, 0.02, 0.1)),
        )
    for sequence in range(random.choice((0, 1, 2))):
        draft.step(
            client,
            "chain plain",
            task=1,
            chain=chain,
            sequence=sequence,
            after=(begun[-1],),
            pause_s=random.choice((0.0, 0.05)),
            **place,
        )


VERBS: dict[str, Verb] = {
    "chain begin": chain_begin,
    "chain end": chain_end,
    "chain plain": chain_plain,
}
