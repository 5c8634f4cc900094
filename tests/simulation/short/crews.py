"""Groups that make messages of messages, with process() or by hand: each input counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import feed, filled
from tests.simulation.short.consuming import backlog
from tests.simulation.short.derived import (
    DRAIN_SECONDS_MAX,
    acknowledges_by_itself,
    is_poison,
    make_topic,
    read_out,
    tally,
)
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar_core.errors import MagnetarError, OutcomeUnknown

REBALANCE_SECONDS = 2.0

Transform = Callable[[magnetar.Message], Awaitable[list[magnetar.Output]]]


async def crew(
    actor: Actor,
    step: Step,
    *,
    group: str,
    topic: str,
    made: str,
    dead: str,
    seconds: float,
    transactional_id: str,
    batch: int,
    way: str = "process",
    slow_s: float = 0.0,
) -> None:
    """A member of a group that works for a while; at the end, until all is done.

    Args:
        way: it runs "process"; or it sends "offsets" in transactions of its own.
        slow_s: for so long it works on each message.
    """
    world = actor.world
    client = await actor.client()
    for name in (made, dead):
        await make_topic(actor, name, 1)
    producer = client.transactional_producer(transactional_id or None)
    stop = asyncio.Event()
    acknowledges_by_itself(actor, topic, group)
    outputs, letters = tally(actor, made), tally(actor, dead)

    async def transform(message: magnetar.Message) -> list[magnetar.Output]:
        world.saw(message)
        if slow_s:
            await asyncio.sleep(slow_s)
        if is_poison(message.value):
            letters.may[message.value] = None
            raise ValueError("poison")
        value = b"of:" + message.value
        outputs.may[value] = None
        return [magnetar.Output(made, value)]

    async def stop_later() -> None:
        if not step.closing:
            await asyncio.sleep(seconds)
        else:
            settings = {"topic": topic, "subscription": group}
            for _ in range(int(DRAIN_SECONDS_MAX / 0.2)):
                await asyncio.sleep(0.2)
                if not await backlog(actor, settings):
                    break
        stop.set()

    consumer = await client.consumer_group(
        group,
        [topic],
        session_timeout_s=0.8,
        rebalance_timeout_s=REBALANCE_SECONDS,
        initial_position="earliest",
        receiver_queue_messages=16,
        nack_delay_ms=20,
        nack_delay_ms_max=100,
    )
    stopping = asyncio.ensure_future(stop_later())
    try:
        async with consumer:
            if way == "offsets":
                await _send_offsets(actor, consumer, producer, transform, dead, batch, stop)
            else:
                await _process(actor, consumer, producer, transform, dead, batch, stop)
    except MagnetarError:
        stopping.cancel()
        await producer.close()
        raise
    stopping.cancel()
    await producer.close()
    if step.closing:
        world.final_checks.append(
            lambda trimmed: _check_made(actor, topic, made, dead, complete=not trimmed)
        )
        await read_out(actor, made)
        await read_out(actor, dead)


async def _process(
    actor: Actor,
    consumer: magnetar.GroupConsumer,
    producer: magnetar.TransactionalProducer,
    transform: Transform,
    dead: str,
    batch: int,
    stop: asyncio.Event,
) -> None:
    world = actor.world
    since = world.loop.time()
    summary = await magnetar.process(
        consumer,
        transform,
        producer,
        batch_messages_max=batch,
        batch_wait_s=0.01,
        attempts_max=2,
        dead_letter=dead,
        stop=stop,
        handle_signals=False,
    )
    world.provoked["processed"] += summary.messages_in
    world.provoked["processed dead letters"] += summary.dead_lettered
    nodes = [actor.name, *(server.name for server in world.servers)]
    is_calm = world.calm.seconds(nodes, since) == world.loop.time() - since
    if is_calm and summary.fenced:
        world.history.violation(
            "group", f"{actor.name} lost what it was working on, and nothing was wrong"
        )


async def _send_offsets(
    actor: Actor,
    consumer: magnetar.GroupConsumer,
    producer: magnetar.TransactionalProducer,
    transform: Transform,
    dead: str,
    batch: int,
    stop: asyncio.Event,
) -> None:
    """A transaction for each batch, with the offsets up to which the member has come."""
    await producer.init_transactions(consumer)
    while not stop.is_set():
        messages = await consumer.receive_batch(batch, timeout_s=0.2)
        if not messages:
            continue
        try:
            await producer.begin()
            for message in messages:
                try:
                    outputs = await transform(message)
                except ValueError:
                    outputs = [magnetar.Output(dead, message.value)]
                for one in outputs:
                    await producer.enqueue(one.topic, one.value)
            await producer.send_offsets_to_transaction(magnetar.offsets(messages))
            await _commit(producer)
        except MagnetarError:
            await _start_over(actor, producer, consumer)
        else:
            actor.world.provoked["processed by offsets"] += len(messages)


async def _start_over(
    actor: Actor, producer: magnetar.TransactionalProducer, consumer: magnetar.GroupConsumer
) -> None:
    """What was open is ended at once: until its timeout, nobody else would get its inputs."""
    world = actor.world
    left, since = producer.transaction, world.loop.time()
    was_open = left is not None and left.status is magnetar.TransactionStatus.OPEN
    await producer.init_transactions(consumer)
    nodes = [actor.name, *(server.name for server in world.servers)]
    is_calm = world.calm.seconds(nodes, since) == world.loop.time() - since
    if left is not None and was_open and left.has_begun and is_calm:
        world.provoked["started over"] += 1
        world.asked_wiretap.check_ended(left.txn_id)


async def _commit(producer: magnetar.TransactionalProducer) -> None:
    """Until it is known: to go on without knowing could count the batch twice."""
    while True:
        try:
            await producer.commit()
            return
        except OutcomeUnknown:
            await asyncio.sleep(0.05)


def _check_made(actor: Actor, topic: str, made: str, dead: str, *, complete: bool) -> None:
    """Each input has one output or one dead letter; outputs keep the order of their inputs.

    Args:
        complete: as for _check_poison.
    """
    world = actor.world
    outputs, letters = tally(actor, made), tally(actor, dead)
    for (name, partition), log in world.history.seen.items():
        newest = (-1, -1)
        for offset in sorted(log) if name == topic else ():
            value = log[offset]
            if world.history.sent[value].producer.startswith("probe"):
                continue
            among, expected = (letters, value) if is_poison(value) else (outputs, b"of:" + value)
            place = among.seen.get(expected)
            if place is None and not complete:
                continue
            if place is None:
                world.history.violation("6", f"{topic}/{partition} {offset} was never processed")
            if among is outputs:
                if place < newest:
                    world.history.violation(
                        "group", f"{topic}/{partition} {offset} lies before an earlier one's output"
                    )
                newest = place


def crews(draft: Draft) -> None:
    """Members of a group run process(), come and go; every input counts once and in order."""
    random = draft.random
    topic = draft.topic("in", 2)
    filled(draft, topic, random.randint(6, 16))
    feed(draft, topic, random.randint(2, 5))
    common: dict[str, Any] = {
        "group": "crew",
        "topic": topic,
        "made": "made",
        "dead": "buried",
        "batch": random.choice((1, 4, 50)),
    }
    for _ in range(random.choice((1, 2, 3))):
        client = draft.client("member")
        for _ in range(random.choice((1, 1, 2))):
            draft.step(
                client,
                "crew",
                seconds=random.choice((0.2, 0.6, 1.5)),
                transactional_id=random.choice(("", client)),
                way=random.choice(("process", "process", "offsets")),
                slow_s=random.choice((0.0, 0.0, 0.03)),
                pause_s=random.choice((0.0, 0.1)),
                **common,
            )
    draft.step(client, "crew", seconds=0.0, transactional_id="", closing=True, **common)


VERBS: dict[str, Verb] = {"crew": crew}
