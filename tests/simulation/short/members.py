"""Transactional ids, named sequences, and several coordinators of which one is away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.simulation.history import Sent
from tests.simulation.sdk_unit import Unit
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    ProducerFenced,
    SequenceCommitted,
    SequenceTooOld,
)
from magnetar_core.wire import common_pb2

# A begin that takes longer has waited for a coordinator that does not answer.
SLOW_BEGIN_SECONDS = 0.3
# Of these, in one client, before it must know better; and one more for each so many seconds.
SLOW_BEGINS_MAX = 2
SLOW_BEGINS_EVERY_S = 10.0


@dataclass(slots=True, eq=False)
class Instance:
    """A producer with a transactional id: when it asked for its epoch, and when it heard."""

    asked_at: float
    answered_at: float = inf


async def identified(
    actor: Actor, step: Step, *, name: str, topic: str, units: list[str], abandon: bool = False
) -> None:
    """One life of a transactional producer; nobody else has its id meanwhile.

    Args:
        units: how each of its transactions ends.
        abandon: the last one is left open.
    """
    world = actor.world
    client = await actor.client()
    producer = client.transactional_producer(name)
    label = f"{actor.name}/{name}/{step.number}"
    instances = world.instances.setdefault(name, [])
    mine = Instance(asked_at=world.loop.time())
    instances.append(mine)
    try:
        await producer.init()
        mine.answered_at = world.loop.time()
        for number, end in enumerate(units):
            await _one_unit(
                actor, step, producer, label, topic, end, leave=abandon and number == len(units) - 1
            )
    except ProducerFenced as error:
        # Of two that ask at the same time, either may be the first.
        others = (one for one in instances if one is not mine and one.answered_at >= mine.asked_at)
        if not any(others) and actor.kept.get("life") == actor.node.life:
            world.history.violation(
                "o", f"{label} is fenced, and nobody has taken its place: {error}"
            )
        world.provoked["fenced"] += 1
    except MagnetarError:
        await producer.close()
        raise
    await producer.close()


async def _one_unit(
    actor: Actor,
    step: Step,
    producer: magnetar.TransactionalProducer,
    label: str,
    topic: str,
    end: str,
    *,
    leave: bool,
) -> None:
    world, history = actor.world, actor.world.history
    actor.kept["life"] = actor.node.life
    await producer.begin()
    transaction = producer.transaction
    assert transaction is not None
    record = history.begin(transaction.txn_id, label)
    sent: list[Sent] = []
    partitions = world.script.topics[topic]
    for number in range(1 + step.number % 3):
        message = history.send(f"{label}/{topic}", topic, number % partitions, record)
        await producer.send(topic, message.value, partition=message.place[1])
        message.confirmed = True
        sent.append(message)
    if leave:
        return
    asked_at = world.loop.time()
    if end == "abort":
        history.ask_abort(record)
        await producer.abort()
        history.told(record, common_pb2.ABORTING, asked_at=asked_at)
        return
    history.ask_commit(record, expected=sent)
    for _ in range(3):
        asked_at = world.loop.time()
        try:
            await producer.commit()
        except OutcomeUnknown:
            continue
        except (magnetar.CommitRefused, InvalidTxnState):
            history.never_commits(record)
            await producer.init()
            return
        history.told(record, common_pb2.COMMITTING, asked_at=asked_at)
        world.provoked["identified commits"] += 1
        return


async def named(
    actor: Actor, step: Step, *, name: str, sequence: int, topic: str, end: str
) -> None:
    """One run of a piece of work that counts once, perhaps once more after it has counted."""
    world, history = actor.world, actor.world.history
    done: dict[int, bool] = world.sequences.setdefault(name, {})
    certainly = done.get(sequence, False)
    later = any(other > sequence and sure for other, sure in done.items())
    client = await actor.client()
    token = f"run-{step.number}-{actor.node.life}"
    try:
        txn = await client.begin_named_transaction(name, sequence, token, timeout_s=3.0)
    except SequenceCommitted:
        if sequence not in done:
            history.violation("o", f"{sequence} of {name} is said to be done, and nobody did it")
        world.provoked["sequence replayed"] += 1
        return
    except SequenceTooOld:
        if not any(other > sequence for other in done):
            history.violation("o", f"{sequence} of {name} is too old, and none is newer")
        world.provoked["sequence too old"] += 1
        return
    if certainly or later:
        history.violation("o", f"{sequence} of {name} may run again, its like has been committed")
    unit = Unit(world, txn, actor.name)
    writer = await actor.writer(f"named-{topic}", topic)
    try:
        await unit.send(writer, step.number % world.script.topics[topic], wait=False)
    except MagnetarError:
        await unit.abort()
        return
    if end == "abort":
        await unit.abort()
    elif end == "commit":
        # From now on it may have been done; only an answer makes that certain.
        done.setdefault(sequence, False)
        if await commit(actor, unit, attempts=3):
            done[sequence] = True
    elif end == "leave":
        world.history.counts["abandoned"] += 1


async def begins(
    actor: Actor, step: Step, *, count: int, topic: str, gap_s: float, away: str
) -> None:
    """Short transactions while a coordinator is away: the client soon leaves it alone."""
    world = actor.world
    writer = await actor.writer("w", topic)
    client = await actor.client()
    slow, started_at = 0, world.loop.time()
    nodes = [actor.name, *(one for one in world.server_names if one != away)]
    for number in range(count):
        asked_at = world.loop.time()
        try:
            txn = await client.begin_transaction(5.0)
        except MagnetarError as error:
            world.note_client_failure(actor.node, error)
            continue
        waited = world.calm.seconds(nodes, asked_at)
        slow += waited > SLOW_BEGIN_SECONDS
        allowed = SLOW_BEGINS_MAX + (world.loop.time() - started_at) / SLOW_BEGINS_EVERY_S
        if slow > allowed:
            world.history.violation(
                "time",
                f"{slow} of {number + 1} begins of {actor.name} were slow, the last one took"
                f" {waited:.3f} s, with {away} away",
            )
        world.provoked["begins beside a dead coordinator"] += 1
        unit = Unit(world, txn, actor.name)
        try:
            await unit.send(writer, number % world.script.topics[topic], wait=False)
        except MagnetarError:
            await unit.abort()
            continue
        await commit(actor, unit, attempts=3)
        await asyncio.sleep(gap_s)


def identities(draft: Draft) -> None:
    """Instances of transactional ids, one at a time; requests arrive late once more."""
    random = draft.random
    topic = draft.topic("mix", 2)
    for number in range(random.choice((1, 2))):
        client = draft.client("identity")
        for _ in range(random.choice((1, 2, 3))):
            step = draft.step(
                client,
                "identified",
                name=f"id{number}",
                topic=topic,
                units=[
                    random.choice(("commit", "commit", "abort"))
                    for _ in range(random.randint(1, 4))
                ],
                abandon=random.random() < 0.2,
                pause_s=random.choice((0.0, 0.1)),
            )
            if random.random() < 0.7:
                ends: dict[str, Any] = {"client": client, "server": "coordinator"}
                delay_s = random.uniform(0.005, 0.03)
                command = random.choice(("init_producer", "init_producer", "new_txn", "end_txn"))
                draft.fault(
                    "copies",
                    step=step,
                    delay_s=delay_s,
                    **ends,
                    command=command,
                    late_s=random.choice((0.0, 0.05, 0.5)),
                    count=1,
                )
                if random.random() < 0.4:
                    draft.fault("link", step=step, delay_s=delay_s, **ends, late=True)


def sequences(draft: Draft) -> None:
    """Named sequences: done, done again, and done when a later one has been done."""
    random = draft.random
    topic = draft.topic("mix", 2)
    client = draft.client("job")
    name, sequence = "job", random.randint(0, 3)
    for _ in range(random.randint(5, 10)):
        draft.step(
            client,
            "named",
            name=name,
            sequence=max(0, sequence + random.choice((0, 0, 0, -1))),
            topic=topic,
            end=random.choice(("commit", "commit", "abort", "leave")),
            pause_s=random.choice((0.0, 0.05)),
        )
        sequence += random.random() < 0.6


def coordinator_away(draft: Draft) -> None:
    """Three coordinators, one of which is away for long: others go on in its place."""
    random = draft.random
    topic = draft.topic("mix", 2)
    draft.coordinator_count = 3
    away = random.choice(("coordinator", "coordinator-1", "coordinator-2"))
    client = draft.client("producer")
    draft.step(
        client,
        "begins",
        count=2,
        topic=topic,
        gap_s=0.0,
        away=away,
    )
    step = draft.step(
        client,
        "begins",
        count=random.randint(6, 10),
        topic=topic,
        gap_s=random.choice((0.0, 0.05)),
        away=away,
    )
    draft.fault("away", step=step, server=away, seconds=25.0, silent=random.random() < 0.3)


VERBS: dict[str, Verb] = {"identified": identified, "named": named, "begins": begins}
