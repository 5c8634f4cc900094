"""Jobs whose tasks share a named transaction (the losers among them must not count), and ids that
an administrator terminates and completes."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.history import Sent
from tests.simulation.identities import Instance, Job, complete_by_hand
from tests.simulation.sdk_unit import COMMIT_ATTEMPTS, Writer
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar import PreparedTxnState
from magnetar_core.errors import (
    InvalidTxnState,
    OutcomeUnknown,
    ProducerFenced,
    SequenceCommitted,
    SequenceTooOld,
)
from magnetar_core.wire import common_pb2

# What is prepared stays so for a moment: an administrator looks so often, with so much between.
LOOKS = 25
LOOK_SECONDS = 0.01


async def drive(actor: Actor, step: Step, *, sequences: int, topic: str) -> None:
    """Do some sequences of a job of this client's own, with two tasks each."""
    world = actor.world
    kept = world.jobs.setdefault(actor.name, Job())
    random = actor.random(f"drive/{step.number}/{actor.node.life}")
    writers = [await actor.writer(f"task-{number}", topic) for number in range(2)]
    for _ in range(sequences):
        try:
            await _one_sequence(actor, kept, writers, random)
        except SequenceCommitted as error:
            # Another run of it, whose answer was lost.
            world.provoked["o replayed"] += 1
            kept.told[kept.sequence] = error.fingerprint
            kept.sequence += 1
        except SequenceTooOld:
            world.history.violation("o", f"{kept.sequence} of {actor.name} is too old")
        await asyncio.sleep(random.uniform(0.0, 0.2))


async def _one_sequence(actor: Actor, kept: Job, writers: list[Writer], random: Random) -> None:
    client, history, sequence = await actor.client(), actor.world.history, kept.sequence
    token = f"run-{random.getrandbits(32):08x}"

    async def join() -> magnetar.Transaction:
        return await client.begin_named_transaction(actor.name, sequence, token, timeout_s=3.0)

    winner, loser = await join(), await join()
    if winner.txn_id != loser.txn_id:
        return  # The first one expired meanwhile.
    record = history.begin(winner.txn_id, actor.name)
    kept.runs.setdefault(sequence, {})[winner.txn_id] = None
    sent: list[list[Sent]] = [[], []]
    for which, (writer, txn) in enumerate(zip(writers, (winner, loser), strict=True)):
        for _ in range(random.randint(1, 3)):
            message = history.send(writer.name, writer.topic, random.randrange(2), record)
            writer.producer.send_nowait(message.value, partition=message.place[1], txn=txn)
            sent[which].append(message)
    try:
        part = await winner.leave()
        await loser.leave()
    except (magnetar.CommitRefused, InvalidTxnState):
        return
    history.ask_commit(record, expected=sent[0])
    for _ in range(COMMIT_ATTEMPTS):
        asked_at = actor.world.loop.time()
        try:
            status = await client.commit_parts([part], fingerprint=str(part.txn_id))
        except OutcomeUnknown:
            continue
        except InvalidTxnState:
            history.never_commits(record)
            return
        for message in sent[0]:
            message.confirmed = True
        history.told(record, status, asked_at=asked_at)
        actor.world.provoked["o sequences"] += 1
        kept.sequence = sequence + 1
        return


async def terminated(actor: Actor, step: Step, *, units: list[str]) -> None:
    """What an id has prepared is committed, or an administrator terminates it: then it never is.

    Meanwhile the administrator completes what databases name.
    """
    world, client, name = actor.world, await actor.client(), f"victim-{actor.name}"
    world.victims[name] = None
    random = actor.random(f"terminated/{step.number}/{actor.node.life}")
    instance = Instance(world, client, actor.node, name)
    await instance.init()
    await instance.producer.complete(PreparedTxnState())
    for end in units:
        for _ in range(LOOKS if world.databases else 0):
            await complete_by_hand(world, client, random.choice(sorted(world.databases)))
            await asyncio.sleep(LOOK_SECONDS)
        await instance.begin()
        await instance.send(random, actor.name, wait=True)
        await instance.producer.prepare()
        record = instance.record
        assert record is not None
        if end == "terminate":
            asked_at = world.loop.time()
            await client.admin.transactional_ids.force_terminate(
                name, record.txn_id, abort_prepared=True
            )
            world.history.ask_abort(record)
            world.history.told(record, common_pb2.ABORTING, asked_at=asked_at)
            world.provoked["o terminated"] += 1
            world.history.ask_commit(record)
            try:
                await instance.producer.commit()
            except (ProducerFenced, InvalidTxnState):
                return
            world.history.violation("o", f"{record.txn_id} commits after its termination")
        world.history.ask_commit(record, expected=instance.accepted)
        await instance.commit()


def jobs(draft: Draft) -> None:
    """A driver of named sequences, over several lives."""
    random = draft.random
    topic = draft.topic("mix", 2)
    client = draft.client("job")
    for _ in range(random.choice((1, 2))):
        draft.step(client, "drive", sequences=random.randint(2, 5), topic=topic)


def terminations(draft: Draft) -> None:
    """An id that an administrator terminates, again and again."""
    random = draft.random
    for name in ("in", "mix"):
        draft.topic(name, 2)
    client = draft.client("victim")
    for _ in range(random.choice((1, 2, 3))):
        units = random.choices(("commit", "terminate"), k=random.randint(1, 3))
        draft.step(client, "terminated", units=units, pause_s=random.choice((0.0, 0.1)))


VERBS: dict[str, Verb] = {"drive": drive, "terminated": terminated}
