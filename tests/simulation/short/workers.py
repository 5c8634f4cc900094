"""Workers: they consume, transform and produce, and acknowledge inputs with the outputs.

Each output names its input: that counts once (invariant 6), and in a group in its order.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.simulation.history import Cursor
from tests.simulation.one_by_one import receive_some
from tests.simulation.sdk_unit import Unit, Writer
from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import TYPES, feed, filled
from tests.simulation.short.consuming import backlog, consumer_of, cursor_of
from tests.simulation.short.derived import DRAIN_SECONDS_MAX
from tests.simulation.short.draft import Draft
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar.enums import BatchingName
from magnetar_core.errors import (
    FencedInstance,
    IllegalGeneration,
    MagnetarError,
    TransactionConflict,
    UnknownMember,
)

INPUT, OUTPUT = "in", "out"
# What a subscription of a group has in the place of a type.
GROUP = "group"


async def work(
    actor: Actor, step: Step, *, settings: dict[str, Any], batches: int, instance_id: str = ""
) -> None:
    """Transform some batches; at the end, until nothing is left.

    Args:
        settings: of the subscription.
        instance_id: of a member of a group; two may have the same, by mistake.
    """
    world = actor.world
    in_group = settings["type"] == GROUP
    for number in range(world.script.topics[INPUT]):
        world.processed[INPUT, number, settings["subscription"]] = in_group
    try:
        if in_group:
            consumer = await _member(actor, settings, instance_id, step)
            async with consumer:
                await _work(actor, step, consumer, settings, batches)
        else:
            await _work(
                actor, step, await consumer_of(actor, "worker", settings), settings, batches
            )
    except FencedInstance:
        world.provoked["p fenced"] += 1


async def _member(
    actor: Actor, settings: dict[str, Any], instance_id: str, step: Step
) -> magnetar.GroupConsumer:
    client = await actor.client()
    return await client.consumer_group(
        settings["subscription"],
        [INPUT],
        instance_id=instance_id,
        session_timeout_s=0.8,
        rebalance_timeout_s=2.0,
        max_poll_interval_s=1.0 if step.number % 2 else 300.0,
        initial_position="earliest",
        receiver_queue_messages=settings["receiver_queue_messages"],
        nack_delay_ms=20,
        nack_delay_ms_max=100,
    )


async def _work(
    actor: Actor,
    step: Step,
    consumer: magnetar.Consumer | magnetar.GroupConsumer,
    settings: dict[str, Any],
    batches: int,
) -> None:
    random = actor.random(f"work/{step.number}/{actor.node.life}")
    in_order = isinstance(consumer, magnetar.GroupConsumer)
    batching: BatchingName = "mixed" if in_order else random.choice(("mixed", "by_key"))
    writer = await actor.writer(f"outputs {batching}", OUTPUT, batching=batching)
    # What was given back is covered by a later cumulative ack: then only individual ones.
    cumulative = settings["type"] in ("exclusive", "failover")
    until = actor.world.loop.time() + DRAIN_SECONDS_MAX
    done = 0
    while done < batches or (step.closing and await backlog(actor, settings)):
        done += 1
        if step.closing and actor.world.loop.time() > until:
            return
        messages = await receive_some(consumer, random.choice((1, 2, 4, 16)), timeout_s=0.3)
        for message in messages:
            actor.world.saw(message)
        if not messages:
            continue
        one = _Batch(actor, consumer, writer, settings["subscription"], messages, random)
        await one.process(is_last=step.closing, cumulative=cumulative)
        if isinstance(consumer, magnetar.GroupConsumer):
            if not one.committed:
                consumer.redeliver()
        elif not one.acknowledged:
            # Those that the transaction did acknowledge come again by themselves.
            consumer.nack_many(messages)
            cumulative = False
        if in_order and not step.closing and random.random() < 0.02:
            # Longer than max_poll_interval_s: others take over.
            await asyncio.sleep(1.5)


class _Batch:
    """One transaction: an output for each input.

    Attributes:
        acknowledged: all inputs, in the transaction.
        committed: as far as its client was told.
    """

    def __init__(
        self,
        actor: Actor,
        consumer: magnetar.Consumer | magnetar.GroupConsumer,
        writer: Writer,
        subscription: str,
        messages: list[magnetar.Message],
        random: Random,
    ) -> None:
        self._actor = actor
        self._world = actor.world
        self._consumer = consumer
        self._writer = writer
        self._messages = messages
        self._random = random
        self._subscription = subscription
        self._by_cursor: dict[Cursor, list[magnetar.Message]] = {}
        for message in messages:
            self._by_cursor.setdefault(cursor_of(message, subscription), []).append(message)
        self.acknowledged = False
        self.committed = False

    async def process(self, *, is_last: bool, cumulative: bool) -> None:
        random, history = self._random, self._world.history
        timeout_s = random.choice((1.0, 3.0))
        fate = 0.0 if is_last else random.random()
        client = await self._actor.client()
        try:
            txn = await client.begin_transaction(timeout_s)
        except MagnetarError as error:
            self._world.note_client_failure(self._actor.node, error)
            return
        unit = Unit(self._world, txn, self._actor.name)
        try:
            await self._transform(unit)
            if fate >= 0.95:
                # A zombie by the time it goes on, if it has expired or others have taken over.
                await asyncio.sleep(timeout_s + random.uniform(-0.9, 1.0))
            await self._acknowledge(unit, cumulative=cumulative and random.random() < 0.5)
        except MagnetarError as error:
            if isinstance(error, IllegalGeneration | UnknownMember):
                self._world.provoked["p refused"] += 1
            if isinstance(error, TransactionConflict):
                history.counts["conflicts"] += 1
            await unit.abort()
            return
        self.acknowledged = True
        if 0.75 <= fate < 0.87:
            await unit.abort()
        elif 0.87 <= fate < 0.9:
            history.counts["abandoned"] += 1
        elif await commit(self._actor, unit, attempts=4):
            self.committed = True
            history.counts["inputs processed"] += len(self._messages)

    async def _transform(self, unit: Unit) -> None:
        random, world = self._random, self._world
        in_order = isinstance(self._consumer, magnetar.GroupConsumer)
        for message in self._messages:
            partitions = world.script.topics[OUTPUT]
            # The outputs of an input partition have one partition: there they are in its order.
            partition = message.partition % partitions if in_order else random.randrange(partitions)
            output = world.history.send(self._writer.name, OUTPUT, partition, unit.record)
            output.input = (cursor_of(message, self._subscription), message.offset)
            await unit.send_message(self._writer, output, wait=random.random() < 0.1)

    async def _acknowledge(self, unit: Unit, *, cumulative: bool) -> None:
        history, asked_at = self._world.history, self._world.loop.time()
        for cursor, some in self._by_cursor.items():
            history.ack(cursor, [one.offset for one in some], unit.record)
        if cumulative:
            assert isinstance(self._consumer, magnetar.Consumer)
            for some in self._by_cursor.values():
                newest = max(some, key=lambda one: one.offset)
                await self._consumer.ack_cumulative(newest, txn=unit.txn)
        else:
            await self._consumer.ack_many(self._messages, txn=unit.txn)
        for cursor, some in self._by_cursor.items():
            offsets = [one.offset for one in some]
            history.ack_confirmed(cursor, offsets, unit.record, asked_at=asked_at)


def workers(draft: Draft) -> None:
    """Workers of one subscription, who come and go."""
    _at_work(draft, draft.random.choice(TYPES), draft.random.choice((1, 2, 2)), steps=(1, 2, 2, 3))


def group_workers(draft: Draft) -> None:
    """Members of a group; the third and the fourth have one instance id, by mistake."""
    _at_work(draft, GROUP, draft.random.choice((2, 2, 3, 4)), steps=(1, 2, 3))


def _at_work(draft: Draft, type: str, count: int, *, steps: tuple[int, ...]) -> None:
    random = draft.random
    draft.topic(INPUT, 2)
    draft.topic(OUTPUT, 2)
    settings: dict[str, Any] = {
        "topic": INPUT,
        "subscription": f"work-{len(draft.steps)}",
        "type": type,
        "receiver_queue_messages": random.choice((4, 16, 64)),
    }
    filled(draft, INPUT, random.randint(6, 16))
    feed(draft, INPUT, random.randint(2, 6))
    for number in range(count):
        client = draft.client("worker")
        common: dict[str, Any] = {"settings": settings}
        if type == GROUP:
            twins = f"{settings['subscription']}-twins"
            common["instance_id"] = ("", client, twins, twins)[number % 4]
        for _ in range(random.choice(steps)):
            batches, pause_s = random.randint(2, 6), random.choice((0.0, 0.0, 0.1))
            draft.step(client, "work", batches=batches, pause_s=pause_s, **common)
        draft.step(client, "work", batches=0, closing=True, **common)


VERBS: dict[str, Verb] = {"work": work}
