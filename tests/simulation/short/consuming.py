"""What consumers of the SDK do: acknowledge in transactions, abort, come back for what they gave
back; administrators who abort under them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.history import Cursor
from tests.simulation.one_by_one import COUNT, receive_some
from tests.simulation.sdk_unit import Unit
from tests.simulation.short.actors import Actor
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar_core.errors import InvalidTxnState, MagnetarError, TransactionConflict
from magnetar_core.wire import common_pb2

# From an abort's answer until what it gave back is with a consumer that asks for it.
AGAIN_SECONDS_MAX = 2.0
# At the end, without faults: nothing comes for so long, and something is left. A link that was
# half-open when its client hung up may have something for 40 s.
DRAIN_SILENCE_SECONDS = 45.0
# How long to wait for it before giving up: the bound is judged by calm time alone.
AGAIN_SECONDS_PATIENCE = 20.0


async def consumer_of(actor: Actor, name: str, settings: dict[str, Any]) -> magnetar.Consumer:
    """A consumer, made at its first use."""
    known: magnetar.Consumer | None = actor.consumers.get(name)
    if known is None:
        client = await actor.client()
        made = await client.subscribe(
            initial_position="earliest",
            consumer_name=f"{actor.name}-{name}",
            nack_delay_ms=20,
            nack_delay_ms_max=100,
            **settings,
        )
        known = actor.consumers.setdefault(name, made)
    return known


async def receive(
    actor: Actor, consumer: magnetar.Consumer, count: int, *, timeout_s: float = 0.3
) -> list[magnetar.Message]:
    """So many messages, or what there is."""
    messages: list[magnetar.Message] = []
    while len(messages) < count:
        some = await receive_some(consumer, count - len(messages), timeout_s=timeout_s)
        if not some:
            break
        for message in some:
            actor.world.saw(message)
            _check_copy(actor, consumer, message)
        messages += some
    return messages


def _check_copy(actor: Actor, consumer: magnetar.Consumer, message: magnetar.Message) -> None:
    """What a transaction has acknowledged comes again when it is known to be aborted, no sooner."""
    known = actor.acked_in.get((consumer, message.topic, message.partition, message.offset))
    if known is None or known[1] in actor.world.history.unchecked_cursors:
        return
    try:
        known[0].work.require_open()
    except MagnetarError:
        return
    text = f"{message.topic}/{message.partition} {message.offset} is handed to {actor.name} again"
    actor.world.history.violation("4", f"{text}, while {known[0].txn_id} has acknowledged it")


def cursor_of(message: magnetar.Message, subscription: str) -> Cursor:
    return (message.topic, message.partition, subscription)


def acknowledges(
    actor: Actor,
    unit: Unit,
    consumer: magnetar.Consumer,
    subscription: str,
    messages: list[magnetar.Message],
) -> dict[Cursor, list[magnetar.Message]]:
    """These are about to be acknowledged in a transaction; returns them by cursor."""
    by_cursor: dict[Cursor, list[magnetar.Message]] = {}
    for message in messages:
        cursor = cursor_of(message, subscription)
        by_cursor.setdefault(cursor, []).append(message)
        actor.acked_in[consumer, *cursor[:2], message.offset] = unit.txn, cursor
    for cursor, some in by_cursor.items():
        actor.world.history.ack(cursor, [one.offset for one in some], unit.record)
    return by_cursor


async def ack_in(
    actor: Actor,
    unit: Unit,
    consumer: magnetar.Consumer,
    subscription: str,
    messages: list[magnetar.Message],
    way: str,
) -> None:
    """Acknowledge in a transaction: "many" at once, "each" by itself, or "cumulative"."""
    history, world = actor.world.history, actor.world
    asked_at = world.loop.time()
    by_cursor = acknowledges(actor, unit, consumer, subscription, messages)
    if way == "cumulative":
        for cursor, some in by_cursor.items():
            newest = max(some, key=lambda one: one.offset)
            history.cover(cursor, newest.offset, unit.record)
            await consumer.ack_cumulative(newest, txn=unit.txn)
    elif way == "each":
        for message in messages:
            await consumer.ack(message, txn=unit.txn)
    else:
        await consumer.ack_many(messages, txn=unit.txn)
    for cursor, some in by_cursor.items():
        offsets = [one.offset for one in some]
        world.asked_wiretap.check_acked(cursor, offsets, unit.txn.txn_id)
        history.ack_confirmed(cursor, [one.offset for one in some], unit.record, asked_at=asked_at)


async def take(
    actor: Actor,
    step: Step,
    *,
    consumer: str,
    settings: dict[str, Any],
    count: int,
    way: str,
    end: str,
    timeout_s: float = 3.0,
    alone: bool = False,
) -> None:
    """Receive, acknowledge all of it in one transaction, and end that.

    Where the subscription keeps the order, what an abort gives back comes again in order, and
    before anything that lies behind it.
    """
    world = actor.world
    made = await consumer_of(actor, consumer, settings)
    messages = await receive(actor, made, count)
    if not messages:
        return
    client = await actor.client()
    unit = Unit(world, await client.begin_transaction(timeout_s), actor.name)
    try:
        await ack_in(actor, unit, made, settings["subscription"], messages, way)
    except MagnetarError as error:
        if isinstance(error, TransactionConflict):
            world.history.counts["conflicts"] += 1
        await unit.abort()
        return
    if end == "commit":
        if await commit(actor, unit, attempts=3):
            return
    else:
        await unit.abort()
    # Unless nobody heard: then it is aborted when it expires.
    if end == "abort" and unit.record.decision == common_pb2.ABORT:
        now = world.loop.time()
        await expect_again(actor, made, settings, unit, messages, since=now, alone=alone)


async def expect_again(
    actor: Actor,
    consumer: magnetar.Consumer,
    settings: dict[str, Any],
    unit: Unit,
    messages: list[magnetar.Message],
    *,
    since: float,
    alone: bool,
) -> None:
    """What was given back comes again soon, and in order where the subscription keeps it.

    Afterwards it is given back once more, for whoever comes next.

    On a FAILOVER subscription nobody waits for the end of the transaction at the broker. What the
    broker had acknowledged comes when it hears of that end, perhaps behind the others; each of the
    two is in order.

    Args:
        unit: the transaction that was aborted.
        alone: nobody else consumes there, so that it can come to nobody else.
    """
    world = actor.world
    missing = {(one.partition, one.offset) for one in messages}
    in_order = settings["type"] in ("exclusive", "failover")
    # Who has it alone says what has to end first, whatever breaks on the way.
    excused = settings["type"] != "exclusive"
    received: list[magnetar.Message] = []
    acked = world.asked_wiretap.of((unit.txn.txn_id.most_bits, unit.txn.txn_id.least_bits)).acked
    # By partition, and whether it comes when the broker hears of the end.
    newest: dict[tuple[int, bool], int] = {}
    deadline = world.loop.time() + AGAIN_SECONDS_PATIENCE
    disturbed = (
        world.calm.seconds([actor.name, *world.broker_names], since) < world.loop.time() - since
    )
    while missing and world.loop.time() < deadline:
        some = await receive(actor, consumer, 4, timeout_s=0.05)
        received += some
        nodes = [actor.name, *world.server_names]
        calm = world.calm.seconds(nodes, since)
        disturbed = disturbed or calm < world.loop.time() - since
        for message in some:
            if (message.partition, message.offset) not in missing:
                continue  # It lay ready before the others came back.
            missing.discard((message.partition, message.offset))
            cursor = cursor_of(message, settings["subscription"])
            group = (message.partition, excused and message.offset in acked.get(cursor, ()))
            before = newest.get(group, -1)
            if in_order and not (disturbed and excused) and message.offset < before:
                world.history.violation(
                    "order",
                    f"{message.topic}/{message.partition} {message.offset} comes after {before}"
                    f" to {actor.name}, again after an abort",
                )
            newest[group] = message.offset
        if missing and alone and calm > AGAIN_SECONDS_MAX:
            world.history.violation(
                "time",
                f"{sorted(missing)} did not come again to {actor.name}"
                f" {calm:.3f} calm seconds after the abort",
            )
    world.provoked["came again"] += 1
    consumer.nack_many(received)
    if in_order:
        # Given back one by one they would come in any order: attach anew.
        for name, one in list(actor.consumers.items()):
            if one is consumer:
                del actor.consumers[name]
        await consumer.close()


async def hold(
    actor: Actor,
    step: Step,
    *,
    consumer: str,
    settings: dict[str, Any],
    count: int,
    slot: str,
    send: dict[str, Any] | None = None,
    timeout_s: float = 100.0,
) -> None:
    """Receive, acknowledge in a transaction that lives long, and fall silent."""
    world = actor.world
    made = await consumer_of(actor, consumer, settings)
    messages = await receive(actor, made, count)
    client = await actor.client()
    unit = Unit(world, await client.begin_transaction(timeout_s), actor.name)
    try:
        if send is not None:
            writer = await actor.writer("held", **send)
            await unit.send(writer, 0, wait=True)
        await ack_in(actor, unit, made, settings["subscription"], messages, "many")
    except MagnetarError:
        await unit.abort()
        return
    actor.units[slot] = (unit, messages)


async def administer(actor: Actor, step: Step, *, holder: str, slot: str) -> None:
    """An administrator aborts what another client holds."""
    world = actor.world
    other = world.actors.get(holder)
    held = other.units.get(slot) if other is not None else None
    if held is None:
        return
    unit: Unit = held[0]
    administrator = await actor.client()
    world.history.ask_abort(unit.record)
    asked_at = world.loop.time()
    try:
        await administrator.admin.transactions.end(
            unit.txn.txn_id, magnetar.TransactionAction.ABORT
        )
    except InvalidTxnState:
        return
    world.history.told(unit.record, common_pb2.ABORTING, asked_at=asked_at)
    actor.kept[slot] = world.loop.time()


async def regain(
    actor: Actor,
    step: Step,
    *,
    consumer: str,
    settings: dict[str, Any],
    slot: str,
    administrator: str,
) -> None:
    """What an administrator took out of an idle client's transaction comes to it again at once."""
    world = actor.world
    held, made = actor.units.get(slot), actor.consumers.get(consumer)
    other = world.actors.get(administrator)
    aborted_at = other.kept.get(slot) if other is not None else None
    if held is None or made is None or aborted_at is None:
        return
    world.provoked["administrator aborted"] += 1
    unit, messages = held
    if messages:
        await expect_again(actor, made, settings, unit, messages, since=aborted_at, alone=True)


async def drain(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any], nack_share: float = 0.0
) -> None:
    """Consume what there is with plain acks; gives some back. At the end nothing is left over."""
    world, random = actor.world, actor.random(f"step/{step.number}")
    made = await consumer_of(actor, consumer, settings)
    subscription = settings["subscription"]
    silent_since = world.loop.time()
    while True:
        messages = await receive(actor, made, random.choice((1, 4, 16)), timeout_s=0.3)
        if messages:
            silent_since = world.loop.time()
        elif not step.closing:
            return
        else:
            await made.flush_acks()
            left = await backlog(actor, settings)
            if not left:
                world.provoked["drained"] += 1
                return
            if world.loop.time() - silent_since > DRAIN_SILENCE_SECONDS:
                world.history.violation(
                    "2", f"{left} messages of {settings['topic']} do not come to {subscription}"
                )
            continue
        if random.random() < nack_share:
            made.nack_many(messages)
            world.history.counts["nacks"] += len(messages)
            await asyncio.sleep(0.02)
            continue
        for message in messages:
            world.history.ack(cursor_of(message, subscription), [message.offset], None)
        if len(messages) == COUNT:
            for message in messages:
                made.ack_nowait(message)
            await made.flush_acks()
        else:
            await made.ack_many(messages)
        for message in messages:
            cursor = cursor_of(message, subscription)
            world.asked_wiretap.check_acked(cursor, [message.offset])


async def seek(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any], position: str
) -> None:
    """Move the cursor of all partitions to where their logs begin, or end."""
    world = actor.world
    made = await consumer_of(actor, consumer, settings)
    for partition in range(world.script.topics[settings["topic"]]):
        # What is acknowledged there now may not be for long.
        world.history.unchecked_cursors.add(
            (settings["topic"], partition, settings["subscription"])
        )
    await made.seek(position=position)
    world.provoked["seeks"] += 1


async def backlog(actor: Actor, settings: dict[str, Any]) -> int:
    """Messages that a subscription has not consumed for good."""
    description = await actor.raw().describe_topic(settings["topic"])
    actor.world.check_description(description)
    return sum(
        one.backlog + one.pending_ack_count
        for partition in description.partitions
        for one in partition.subscriptions
        if one.subscription == settings["subscription"]
    )


async def leave(actor: Actor, step: Step, *, consumer: str) -> None:
    """A consumer closes; its next use makes another one."""
    made = actor.consumers.pop(consumer, None)
    if made is not None:
        await made.close()


async def keep(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any], count: int, slot: str
) -> None:
    """Receive, and say nothing about it for now."""
    made = await consumer_of(actor, consumer, settings)
    actor.units[slot] = await receive(actor, made, count)


async def ack_kept(
    actor: Actor, step: Step, *, consumer: str, settings: dict[str, Any], count: int, slot: str
) -> None:
    """Acknowledge some of it, outside of transactions."""
    made, messages = actor.consumers.get(consumer), actor.units.get(slot)
    if made is None or not messages:
        return
    some, actor.units[slot] = messages[:count], messages[count:]
    for message in some:
        actor.world.history.ack(
            cursor_of(message, settings["subscription"]), [message.offset], None
        )
    await made.ack_many(some)
    await made.flush_acks()
    for message in some:
        cursor = cursor_of(message, settings["subscription"])
        actor.world.asked_wiretap.check_acked(cursor, [message.offset])
    actor.world.provoked["acked what was kept"] += len(some)


VERBS: dict[str, Verb] = {
    "keep": keep,
    "ack kept": ack_kept,
    "take": take,
    "hold": hold,
    "administer": administer,
    "regain": regain,
    "drain": drain,
    "leave": leave,
    "seek": seek,
}
