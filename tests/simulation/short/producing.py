"""Steps of producers: transactions, plain messages, whole batches, and lost answers."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import Any

from tests.simulation.history import Sent
from tests.simulation.raw_unit import ask_status
from tests.simulation.sdk_unit import Unit, Writer
from tests.simulation.short.actors import Actor
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

import magnetar
from magnetar_core.errors import InvalidTxnState, MagnetarError, OutcomeUnknown
from magnetar_core.wire import common_pb2

# What nothing may take longer than, while nothing is wrong with those who have a part in it.
PATIENCE_SECONDS = 2.5
COMMIT_ATTEMPTS = 3
# From the end of a transaction until a client has asked for it, if nobody heard its commit.
FIND_OUT_SECONDS_MAX = 2.5


async def transact(
    actor: Actor,
    step: Step,
    *,
    writers: dict[str, dict[str, Any]],
    sends: list[tuple[str, int, bool]],
    timeout_s: float,
    end: str,
    unheard: str = "",
    attempts: int = COMMIT_ATTEMPTS,
    wait_finished: bool = False,
    pause_s: float = 0.0,
    last: list[tuple[str, int]] | None = None,
    beside: list[tuple[str, int, float]] | None = None,
) -> None:
    """One transaction.

    Args:
        writers: settings of its producers, by name.
        sends: producer, partition, whether to wait for the answer.
        last: plain messages right before its end; producer, and partition.
        beside: plain messages while a commit is under way, and after how many seconds.
        end: "commit", "abort", "leave" it open, or "late": commit when it has expired.
        unheard: the "request" for the commit, or its "answer", gets lost.
    """
    world = actor.world
    made = {name: await actor.writer(name, **settings) for name, settings in writers.items()}
    client = await actor.client()
    asked_at = world.loop.time()
    unit = Unit(world, await client.begin_transaction(timeout_s), actor.name)
    _check_patience(actor, "begin", asked_at)
    try:
        for name, partition, wait in sends:
            await unit.send(made[name], partition, wait=wait)
        if end == "late":
            world.history.counts["pauses"] += 1
            await asyncio.sleep(timeout_s + 0.3)
        elif pause_s:
            await asyncio.sleep(pause_s)
    except MagnetarError:
        await unit.abort()
        return
    for name, partition in last or ():
        await made[name].plain(partition, wait=False)
    if end == "abort":
        await unit.abort()
    elif end == "leave":
        world.history.counts["abandoned"] += 1
    else:
        ending = commit(
            actor,
            unit,
            unheard=unheard,
            attempts=attempts,
            wait_finished=wait_finished,
            alone=actor.task_count == 1 and not beside,
        )
        # Also when a send is refused, the next transaction begins after this one.
        both = await asyncio.gather(
            ending, _send_beside(made, beside or []), return_exceptions=True
        )
        for outcome in both:
            if isinstance(outcome, BaseException):
                raise outcome


async def _send_beside(writers: dict[str, Writer], beside: list[tuple[str, int, float]]) -> None:
    for name, partition, pause_s in beside:
        await asyncio.sleep(pause_s)
        await writers[name].plain(partition, wait=False)


async def commit(
    actor: Actor,
    unit: Unit,
    *,
    unheard: str = "",
    attempts: int,
    wait_finished: bool = False,
    alone: bool | None = None,
) -> bool:
    """Ask for a commit; returns whether it is committed, as far as its client was told.

    Args:
        alone: its producers send nothing else meanwhile; None: as the client's other tasks do.
    """
    if alone is None:
        alone = actor.task_count == 1
    world, record = actor.world, unit.record
    history = world.history
    history.ask_commit(record, expected=unit.accepted)
    actor.unknown.append(unit)
    if not alone:
        for message in unit.accepted:
            message.until = math.inf
    if unheard:
        _deafen(actor, unit, unheard)
    for _ in range(attempts):
        asked_at = world.loop.time()
        try:
            await unit.txn.commit(wait_finished=wait_finished)
        except (magnetar.CommitRefused, InvalidTxnState):
            unit.check_status()
            actor.unknown.remove(unit)
            history.never_commits(record)
            history.counts["commits refused"] += 1
            return False
        except OutcomeUnknown:
            unit.said_unknown()
            history.counts["outcomes unknown"] += 1
            continue
        except MagnetarError as error:
            if not error.retriable:
                raise
            continue
        actor.unknown.remove(unit)
        returned = history.next_position()
        for message in unit.accepted:
            message.confirmed = True
            if message.until is not None:
                message.until = returned
        unit.check_status()
        history.told(record, unit.txn.status, asked_at=asked_at)
        if not wait_finished and not _may_be_parked(actor):
            _check_patience(actor, "commit", asked_at)
        return True
    return False


def _deafen(actor: Actor, unit: Unit, unheard: str) -> None:
    """The link to the coordinator goes silent in one direction, until it breaks."""
    world = actor.world
    coordinator = world.coordinators[unit.txn.txn_id.tcid].name
    for link in world.network.links(actor.name):
        if link.server_node == coordinator:
            pipe = link.to_server if unheard == "request" else link.to_client
            pipe.blackhole = True
            link.half_open = True
            world.calm.trouble([actor.name], 1.5)
            world.loop.call_later(1.5, link.break_off, context=Context())
            world.provoked["unheard"] += 1


def _may_be_parked(actor: Actor) -> bool:
    """Whether plain messages may wait for a transaction of which nobody knows whether it has ended.

    A commit comes after them.
    """
    return bool(actor.unknown) and any(one.has_unflushed for one in actor.writers.values())


def _check_patience(actor: Actor, what: str, asked_at: float) -> None:
    """Any coordinator may have it, and has to be heard by its broker."""
    world = actor.world
    nodes = [actor.name, *(server.name for server in world.servers)]
    waited = world.calm.seconds(nodes, asked_at)
    if waited > PATIENCE_SECONDS:
        world.history.violation("time", f"{what} of {actor.name} took {waited:.3f} calm seconds")


async def plain(
    actor: Actor,
    step: Step,
    *,
    writer: str,
    settings: dict[str, Any],
    partitions: list[int],
    wait: bool,
    flush: bool = False,
    patient: bool = True,
) -> None:
    """Plain messages, one for each of these partitions.

    Args:
        patient: nothing is said of how long it takes: what they come after may stay open.
    """
    made = await actor.writer(writer, **settings)
    asked_at = actor.world.loop.time()
    try:
        for partition in partitions:
            await made.plain(partition, wait=wait)
        if flush:
            await made.flush()
    finally:
        if not patient:
            _check_patience(actor, "plain sends", asked_at)
            actor.world.provoked["sends behind"] += len(partitions)


async def find_out(actor: Actor, step: Step) -> None:
    """What became of commits that nobody heard of is known soon, without asking."""
    world = actor.world
    nodes = [actor.name, *(server.name for server in world.servers)]
    for unit in actor.unknown:
        if await ask_status(world, actor.raw(), unit.record) == common_pb2.OPEN:
            continue  # The commit got lost as well.
        since = world.loop.time()
        while unit.txn.status is magnetar.TransactionStatus.OPEN:
            waited = world.calm.seconds(nodes, since)
            if waited > FIND_OUT_SECONDS_MAX:
                text = f"{unit.txn.txn_id} has ended, and {actor.name} does not know it"
                world.history.violation("time", f"{text} after {waited:.3f} calm seconds")
            await asyncio.sleep(0.1)
        world.provoked["found out"] += 1


async def flush(actor: Actor, step: Step, *, writer: str) -> None:
    made = actor.writers.get(writer)
    if made is not None:
        await made.flush()


async def whole(
    actor: Actor,
    step: Step,
    *,
    writer: str,
    settings: dict[str, Any],
    partition: int,
    count: int,
    also: int | None = None,
) -> None:
    """A lazy transaction: one plain batch, unless it has to begin for a second partition."""
    made = await actor.writer(writer, **settings)
    client = await actor.client()
    txn = await client.begin_transaction(5.0, lazy=True)
    if also is None:
        await _whole_batch(actor, made, txn, partition, count)
    else:
        await _begun_late(actor, made, txn, [partition] * count + [also])


async def _whole_batch(
    actor: Actor, writer: Writer, txn: magnetar.Transaction, partition: int, count: int
) -> None:
    history = actor.world.history
    messages = [history.send(writer.name, writer.topic, partition) for _ in range(count)]
    asked_at = actor.world.loop.time()
    for message in messages:
        message.key = messages[0].key
        if actor.task_count > 1:
            message.until = math.inf
        writer.producer.send_nowait(message.value, message.key, partition=partition, txn=txn)
    for _ in range(COMMIT_ATTEMPTS):
        try:
            await txn.commit()
        except OutcomeUnknown:
            continue
        except magnetar.CommitRefused:
            history.wholes.append((messages, True))
            return
        history.counts["whole batches"] += 1
        returned = history.next_position()
        for message in messages:
            history.confirm(message, asked_at=asked_at)
            if message.until is not None:
                message.until = returned
        break
    history.wholes.append((messages, False))


async def _begun_late(
    actor: Actor, writer: Writer, txn: magnetar.Transaction, partitions: list[int]
) -> None:
    """Its TxnID is known when it has begun, after its first messages were given to the SDK."""
    history = actor.world.history
    messages: list[Sent] = [
        history.send(writer.name, writer.topic, partition) for partition in partitions
    ]
    for message in messages:
        # As long as nobody knows its transaction, nothing can be said of its place.
        message.position = None
        writer.producer.send_nowait(message.value, message.key, partition=message.place[1], txn=txn)
    for _ in range(200):
        if txn.has_begun:
            break
        await asyncio.sleep(0.01)
    else:
        await txn.abort()
        history.wholes.append((messages, True))
        return
    record = history.begin(txn.txn_id, actor.name)
    unit = Unit.__new__(Unit)
    unit.world, unit.txn, unit.record, unit.accepted = actor.world, txn, record, messages
    record.messages.extend(messages)
    for index, message in enumerate(messages):
        message.txn, message.index = record, index
    actor.world.provoked["lazy began"] += 1
    await commit(actor, unit, attempts=COMMIT_ATTEMPTS)


VERBS: dict[str, Verb] = {
    "transact": transact,
    "plain": plain,
    "find out": find_out,
    "flush": flush,
    "whole": whole,
}
