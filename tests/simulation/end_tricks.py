"""Ends as no well-behaved client asks for them: wrong counts, selections, zombies, contradictions.

Each trick is one transaction by hand; it knows what must come of it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.raw import BROKER, COORDINATOR, NoAnswer, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit, ask_status

from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
)
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World


async def selective_commit(world: World, unit: RawUnit, random: Random) -> None:
    """Rules e, g and h: some producers win; the decision stands for that selection only."""
    await unit.begin(5_000)
    producer_ids = [random.getrandbits(63) for _ in range(random.randint(1, 3))]
    for producer_id in producer_ids:
        for _ in range(random.randint(1, 3)):
            await unit.send(producer_id, "mix", random.randrange(2), count=random.randint(1, 3))
    selected = random.sample(producer_ids, random.randint(0, len(producer_ids)))
    counts = unit.confirmed_counts() if random.random() < 0.7 else None
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages(selected))
    await unit.end(unit.end_command(COMMIT, counts=counts, selected=selected))
    world.provoked["h"] += 1
    if len(selected) < len(producer_ids):
        others = producer_ids if random.random() < 0.5 else None
        if others is None or sorted(others) != sorted(selected):
            await expect_refused(
                world, unit, unit.end_command(COMMIT, counts=counts, selected=others), others
            )
    await unit.end(unit.end_command(COMMIT, counts=counts, selected=selected))


async def expect_refused(
    world: World, unit: RawUnit, command: transaction_pb2.CommandEndTxn, why: object
) -> None:
    """Rule e: another end of a decided transaction is refused, and changes nothing."""
    if why is None and not command.selection_given:
        return  # What is left out is not compared.
    try:
        await unit.client.insist(COORDINATOR, command, attempts=40)
    except InvalidTxnState:
        world.provoked["e"] += 1
        return
    world.history.violation("7", f"{unit.txn_id} was ended in two ways: {command}")


async def surplus(world: World, unit: RawUnit, random: Random) -> None:
    """Rule g: what the client did not count is discarded."""
    await unit.begin(5_000)
    producer_id = random.getrandbits(63)
    place = ("mix", random.randrange(2))
    await unit.send(producer_id, *place, count=random.randint(1, 3))
    counts = unit.confirmed_counts()
    expected = unit.confirmed_messages()
    await unit.send(producer_id, *place, count=random.randint(1, 3))
    if random.random() < 0.5:
        await unit.send(random.getrandbits(63), *place)
    world.history.ask_commit(unit.record, expected=expected)
    await unit.end(unit.end_command(COMMIT, counts=counts))
    world.provoked["g"] += 1


async def orphan(world: World, unit: RawUnit, random: Random) -> None:
    """Rules c and f: a send to a partition that was never added."""
    await unit.begin(5_000)
    producer_id = random.getrandbits(63)
    await unit.send(producer_id, "mix", 0)
    counts = unit.confirmed_counts()
    expected = unit.confirmed_messages()
    topic, partition = random.choice((("mix", 1), ("in", 0)))
    topic_id = await unit.client.lookup(topic)
    sent = world.history.send(f"{unit.name}:orphan", topic, partition, unit.record)
    wire = common_pb2.Partition(topic=topic, partition=partition, topic_id=topic_id)
    await unit.client.insist(
        BROKER, send_command(wire, producer_id, 0, [sent.value], txn_id=unit.txn_id)
    )
    world.orphans += 1
    if random.random() < 0.7:
        world.history.ask_commit(unit.record, expected=expected)
        await unit.end(unit.end_command(COMMIT, counts=counts, wait_finished=True))
    else:
        await unit.end(unit.end_command(ABORT))
    world.provoked["f"] += 1


async def lost_messages(world: World, unit: RawUnit, random: Random) -> None:
    """Rule g: a participant that has less than was counted refuses, until the loss is accepted."""
    await unit.begin(5_000)
    producer_id = random.getrandbits(63)
    await unit.send(producer_id, "mix", 0, count=2)
    await unit.send(producer_id, "mix", 1)
    counts = unit.confirmed_counts()
    counts["mix", 0, producer_id] += 1
    unit.record.inexact = True
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    status = await unit.end(unit.end_command(COMMIT, counts=counts))
    if status == common_pb2.ABORTED:
        return
    for _ in range(200):
        await asyncio.sleep(0.1)
        description = await unit.client.describe_txn(unit.txn_id)
        if description.status != common_pb2.COMMITTING:
            world.history.violation(
                "2", f"{unit.txn_id} went on although a participant lost messages"
            )
        if any(one.HasField("error") for one in description.unfinished):
            world.provoked["g loss"] += 1
            break
    await unit.client.insist(
        COORDINATOR, transaction_pb2.CommandAcceptTxnLoss(txn_id=unit.txn_id.to_wire())
    )


async def zombie_sender(world: World, unit: RawUnit, random: Random) -> None:
    """Rules c and d: sends after the end, repeats of old ones too, are refused for ever."""
    timeout_ms = 300
    await unit.begin(timeout_ms if random.random() < 0.5 else 5_000)
    producer_id = random.getrandbits(63)
    partition = random.randrange(2)
    try:
        await unit.send(producer_id, "mix", partition)
        ended = random.random()
        if ended < 0.5:
            await asyncio.sleep(timeout_ms / 1000 + random.uniform(0.0, 1.0))
        elif ended < 0.8:
            world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
            await unit.end(unit.end_command(COMMIT, counts=unit.confirmed_counts()))
        else:
            await unit.end(unit.end_command(ABORT, wait_finished=True))
    except InvalidTxnState:
        return
    for _ in range(3):
        try:
            # Seen as a violation by the history, if the transaction is known to have ended.
            await unit.send(random.choice((producer_id, random.getrandbits(63))), "mix", partition)
        except InvalidTxnState:
            world.provoked["c zombie"] += 1
        await asyncio.sleep(random.uniform(0.0, 1.0))
        await ask_status(world, unit.client, unit.record)
    if unit.record.decision == ABORT:
        try:
            await unit.client.insist(
                COORDINATOR, unit.end_command(COMMIT, counts=unit.confirmed_counts()), attempts=20
            )
        except InvalidTxnState:
            return
        world.history.violation("7", f"{unit.txn_id} was committed after its abort was told")


async def contrary_ends(world: World, unit: RawUnit, random: Random) -> None:
    """Rule e: two administrators want opposite ends; one gets it, for ever."""
    await unit.begin(5_000)
    await unit.send(random.getrandbits(63), "mix", random.randrange(2))
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    commit = unit.end_command(COMMIT, counts=unit.confirmed_counts())
    abort = unit.end_command(ABORT)
    results = await asyncio.gather(
        unit.end(commit), unit.end(abort), unit.end(commit), return_exceptions=True
    )
    for result in results:
        if isinstance(result, InvalidTxnState):
            world.provoked["e"] += 1
        elif isinstance(result, BaseException) and not isinstance(
            result, (MagnetarError, NoAnswer)
        ):
            raise result


async def end_without_counts(world: World, unit: RawUnit, random: Random) -> None:
    """An end by hand: what is left out is not checked."""
    await unit.begin(5_000)
    for _ in range(random.randint(1, 3)):
        await unit.send(random.getrandbits(63), "mix", random.randrange(2))
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    await unit.end(unit.end_command(COMMIT, wait_finished=random.random() < 0.5))
    await unit.end(unit.end_command(COMMIT))


async def end_of_nothing(world: World, unit: RawUnit, random: Random) -> None:
    """Rule h: a commit of nothing leaves no trace in the log."""
    await unit.begin(5_000)
    if random.random() < 0.7:
        await unit.partition("mix", random.randrange(2))
    world.history.ask_commit(unit.record, expected=[])
    await unit.end(unit.end_command(COMMIT, counts={}, wait_finished=True))


async def stuck_predecessor(world: World, unit: RawUnit, random: Random) -> None:
    """Rule k: what a producer sends after a transaction waits for its end, however long."""
    client = unit.client
    await unit.begin(10_000)
    producer_id = random.getrandbits(63)
    partition = random.randrange(2)
    await unit.send(producer_id, "mix", partition)
    counts = unit.confirmed_counts()
    counts["mix", partition, producer_id] += 1
    unit.record.inexact = True
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    await unit.end(unit.end_command(COMMIT, counts=counts))
    following = RawUnit(world, client, random, unit.name)
    await following.begin(10_000)
    await following.send(producer_id, "mix", partition, follows=unit.txn_id)
    world.history.ask_commit(following.record, expected=following.confirmed_messages())
    await following.end(following.end_command(COMMIT, counts=following.confirmed_counts()))
    # A plain message after both. It is parked: nobody waits for its answer yet.
    topic_id = await client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=partition, topic_id=topic_id)
    plain = world.history.send(f"{unit.name}:{producer_id}", "mix", partition)
    command = send_command(wire, producer_id, 0, [plain.value], follows=following.txn_id)
    asked_at = world.loop.time()
    try:
        await client.ask(BROKER, command, timeout=0.5)
    except NoAnswer:
        world.provoked["k stuck"] += 1
    else:
        description = await client.describe_txn(unit.txn_id)
        if description.status == common_pb2.COMMITTING:
            world.history.violation("5", f"{plain} did not wait for {unit.txn_id}")
    await client.insist(
        COORDINATOR, transaction_pb2.CommandAcceptTxnLoss(txn_id=unit.txn_id.to_wire())
    )
    await client.insist(BROKER, command)
    world.history.confirm(plain, asked_at=asked_at)


async def passed_on(world: World, unit: RawUnit, random: Random) -> None:
    """Rule k: what an aborted transaction followed leads who follows it."""
    client = unit.client
    await unit.begin(10_000)
    producer_id = random.getrandbits(63)
    partition = random.randrange(2)
    await unit.send(producer_id, "mix", partition)
    counts = unit.confirmed_counts()
    counts["mix", partition, producer_id] += 1
    unit.record.inexact = True
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    await unit.end(unit.end_command(COMMIT, counts=counts))
    before = unit
    for action in (COMMIT, ABORT, COMMIT):
        following = RawUnit(world, client, random, unit.name)
        await following.begin(10_000)
        await following.send(producer_id, "mix", partition, follows=before.txn_id)
        if action == COMMIT:
            counted = following.confirmed_counts()
            world.history.ask_commit(following.record, expected=following.confirmed_messages())
            await following.end(following.end_command(COMMIT, counts=counted))
        else:
            await following.end(following.end_command(ABORT, wait_finished=True))
        before = following
    await asyncio.sleep(random.uniform(0.0, 1.0))
    world.provoked["k stuck"] += 1
    await client.insist(
        COORDINATOR, transaction_pb2.CommandAcceptTxnLoss(txn_id=unit.txn_id.to_wire())
    )
