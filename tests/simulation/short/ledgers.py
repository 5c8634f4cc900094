"""Dual writers (KIP-939): a database decides, and its writer's successor completes what it finds.

Two processes share a transactional id, so that one takes it over while the other has something
prepared. A third one asks what nobody may ask of a prepared transaction.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation import identities
from tests.simulation.identities import Database, Instance
from tests.simulation.raw import COORDINATOR
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import MagnetarError, ProducerFenced
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2


async def ledger(
    actor: Actor, step: Step, *, name: str, units: int, reinit: bool, dawdle_s: float
) -> None:
    """One life of a writer: what it finds is completed, and then it writes.

    Args:
        dawdle_s: before it is completed.
        reinit: its last unit stays prepared, and it takes its own id over.
    """
    world = actor.world
    # Known before anybody can find something prepared: at the end it is completed.
    world.databases.setdefault(name, Database())
    random = actor.random(f"ledger/{step.number}/{actor.node.life}")
    instance = Instance(world, await actor.client(), actor.node, name)
    try:
        await identities.recover(world, instance, pause_s=dawdle_s)
        for _ in range(units):
            await identities.one_unit(world, actor.node, instance, random)
        if reinit:
            await instance.begin()
            await instance.send(random, actor.name, wait=True)
            await instance.producer.prepare()
            again = Instance(world, await actor.client(), actor.node, name)
            await identities.recover(world, again, pause_s=dawdle_s)
            await identities.one_unit(world, actor.node, again, random)
            await again.producer.close()
    except ProducerFenced:
        world.provoked["ledger fenced"] += 1
        instance.fenced()
    finally:
        await instance.producer.close()
    world.provoked["ledger lives"] += 1


async def meddle(actor: Actor, step: Step, *, name: str, topic: str, looks: int) -> None:
    """Ask to extend what a new instance has kept, and to end something else in its name.

    Answers are held against what may be asked by who listens on the wire.
    """
    client, world = actor.raw(), actor.world
    topic_id = await client.lookup(topic)
    partition = common_pb2.Partition(topic=topic, partition=0, topic_id=topic_id)
    for _ in range(looks):
        reply = await client.insist(
            COORDINATOR,
            transaction_pb2.CommandListTransactionalIds(pattern=name),
        )
        for one in reply.descriptions:
            if one.state == transaction_pb2.ONGOING and one.next_producer_id != -1:
                await _extend(actor, one, partition)
                world.provoked["kept, and meddled with"] += 1
        await asyncio.sleep(0.01)


async def _extend(
    actor: Actor,
    kept: transaction_pb2.TransactionalIdDescription,
    partition: common_pb2.Partition,
) -> None:
    whose = common_pb2.ProducerIdentity(
        transactional_id=kept.transactional_id,
        producer_id=kept.next_producer_id,
        producer_epoch=kept.next_producer_epoch,
    )
    earlier = TxnID.from_wire(kept.txn_id)._replace(least_bits=0).to_wire()
    bodies: list[Any] = [
        transaction_pb2.CommandAddPartitionToTxn(
            txn_id=kept.txn_id, partitions=[partition], identity=whose
        ),
        transaction_pb2.CommandNewTxn(identity=whose),
    ]
    if earlier != kept.txn_id:
        commit = common_pb2.COMMIT
        bodies.append(
            transaction_pb2.CommandEndTxn(txn_id=earlier, txn_action=commit, identity=whose)
        )
    for body in bodies:
        try:
            await actor.raw().ask(COORDINATOR, body)
        except MagnetarError:
            actor.world.provoked["meddling refused"] += 1


def ledgers(draft: Draft) -> None:
    """Writers with a database each share an id, die, and find what the other one has prepared."""
    random = draft.random
    for name in ("in", "mix"):
        draft.topic(name, 2)
    name = "ledger"
    for _ in range(random.choice((1, 2))):
        client = draft.client("writer")
        for _ in range(random.choice((1, 2, 3))):
            step = draft.step(
                client,
                "ledger",
                name=name,
                units=random.randint(0, 3),
                reinit=random.random() < 0.5,
                dawdle_s=random.choice((0.0, 0.05)),
                pause_s=random.choice((0.0, 0.05, 0.3)),
            )
            if random.random() < 0.5:
                delay_s = random.uniform(0.005, 0.3)
                draft.fault("client crash", step=step, delay_s=delay_s, client=client, down_s=0.05)
            if random.random() < 0.5:
                draft.fault(
                    "copies",
                    step=step,
                    delay_s=random.uniform(0.005, 0.1),
                    client=client,
                    server="coordinator",
                    command=random.choice(("init_producer", "end_txn", "new_txn")),
                    late_s=random.choice((0.0, 0.05, 0.5)),
                    count=1,
                )
    meddler = draft.client("meddler")
    draft.step(meddler, "meddle", name=name, topic="mix", looks=random.choice((20, 60)))


VERBS: dict[str, Verb] = {"ledger": ledger, "meddle": meddle}
