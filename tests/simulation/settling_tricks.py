"""TxnIDs that were made up, and what participants hold that nobody else would end (rule f)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.nodes import ClientNode
from tests.simulation.owners.seats import AnyServer
from tests.simulation.raw import BROKER, NoAnswer, RawClient, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit, raw_client

from magnetar_core.errors import InvalidTxnState, LogUnavailable, TxnNotFound
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

# With nothing going wrong; docs/protocol/rules.md, rule f.
SETTLED_SECONDS_MAX = 2.0


async def made_up(world: World, unit: RawUnit, random: Random) -> None:
    """What nobody has issued is refused; who is given it later finds nothing that was done."""
    await unit.begin(5_000)
    known = unit.txn_id
    counters = [random.randint(1_000, 900_000), 1 << random.randint(20, 63)]
    if not world.ends_without_counts:
        # Somebody is about to be given it. Where transactions end without counts, what a stranger
        # writes after that would count.
        counters.append(random.randint(1, 5))
    txn_id = random.choice(
        (
            TxnID.of(known.tcid, known.incarnation, known.counter + random.choice(counters)),
            TxnID.of(known.tcid, known.incarnation + 1, random.randrange(10)),
            TxnID.of(random.randint(30_000, 40_000), known.incarnation, known.counter),
        )
    )
    wire = await unit.partition("mix", random.randrange(2), add=False)
    for command in (
        send_command(wire, random.getrandbits(63), 0, [b"made up"], txn_id=txn_id),
        transaction_pb2.CommandEndTxnOnPartition(
            txn_id=txn_id.to_wire(), partition=wire, txn_action=ABORT
        ),
    ):
        try:
            await unit.client.ask(BROKER, command)
        except (LogUnavailable, TxnNotFound):
            world.provoked["f made up"] += 1
        except (InvalidTxnState, NoAnswer):
            return
        else:
            is_possible = txn_id.tcid == known.tcid and txn_id.incarnation == known.incarnation
            if not is_possible:
                world.history.violation("f", f"{txn_id} was made up, and taken: {command}")
            # It was passed over after a restart, or somebody has it by now.
            return
    await unit.end(unit.end_command(ABORT))


async def overtaking(world: World, unit: RawUnit, random: Random) -> None:
    """A first send that overtakes the announcement of its TxnID waits for it, or comes again."""
    partition = random.randrange(2)
    topic_id = await unit.client.lookup("mix")
    keeper = world.keeper_of(topic_id, partition)
    before = waited(keeper)
    world.network.hold_up(world.coordinator.name, keeper.name, random.uniform(0.0, 0.15))
    await unit.begin(5_000)
    producer_id = random.getrandbits(63)
    for count in (1, 2):
        await unit.send(producer_id, "mix", partition, count=count)
    if waited(keeper) > before:
        world.provoked["f overtaking"] += 1
    world.history.ask_commit(unit.record, expected=unit.confirmed_messages())
    await unit.end(unit.end_command(COMMIT, counts=unit.confirmed_counts()))


def waited(broker: AnyServer) -> float:
    """How many commands have waited at a broker for the announcement of their TxnID."""
    if not broker.ready.is_set():
        return 0
    name = "magnetar_broker_unannounced_commands_total"
    value: float = broker.server.metrics.registry.get_sample_value(name)
    return value


async def probe_settling(world: World, node: ClientNode) -> None:
    """Whatever else is open: what is held in an ended transaction is settled in two seconds."""
    client = raw_client(world, node)
    random = world.environment.random("probe settling")
    older = RawUnit(world, client, random, "probe-older")
    await older.begin(60_000)
    await older.send(1, "mix", 0)
    plain = world.history.send("probe-settling", "mix", 1)
    topic_id = await client.lookup("mix")
    partition = common_pb2.Partition(topic="mix", partition=1, topic_id=topic_id)
    asked_at = world.loop.time()
    reply = await client.insist(BROKER, send_command(partition, 8, 0, [plain.value]))
    offset = reply.message_id.entry_id + reply.message_id.index
    world.history.confirm(plain, asked_at=asked_at, offset=offset)
    cursor = common_pb2.Subscription(
        topic="mix", subscription="probe", partition=1, topic_id=topic_id
    )
    await client.insist(
        BROKER,
        broker_pb2.CommandSubscribe(subscription=cursor, initial_position=broker_pb2.EARLIEST),
    )
    ended = RawUnit(world, client, random, "probe-ended")
    await ended.begin(60_000)
    world.history.ask_commit(ended.record, expected=[])
    await ended.end(ended.end_command(COMMIT, counts={}, wait_finished=True))
    late_ack = broker_pb2.CommandAck(
        subscription=cursor,
        consumer_id=9,
        ranges=[common_pb2.OffsetRange(first=offset, last=offset)],
        txn_id=ended.txn_id.to_wire(),
    )
    late_send = send_command(partition, 9, 0, [b"of an ended one"], txn_id=ended.txn_id)
    for late in (late_ack, late_send):
        # A watermark may have come that covers it, or its end for the one before.
        with suppress(InvalidTxnState):
            await client.insist(BROKER, late)
    began_at = world.loop.time()
    while ended.txn_id in await held_on(client, "mix"):
        if world.loop.time() - began_at > SETTLED_SECONDS_MAX:
            world.history.violation("f", f"{ended.txn_id} has ended, and is held for too long")
        await asyncio.sleep(0.1)
    world.provoked["f settled"] += 1
    # Force has nothing left to do.
    await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=cursor))
    await older.end(older.end_command(ABORT, wait_finished=True))


async def held_on(client: RawClient, topic: str) -> set[TxnID]:
    """Transactions that are open there, or have acknowledged."""
    description = await client.describe_topic(topic)
    found: set[TxnID] = set()
    for partition in description.partitions:
        found.update(TxnID.from_wire(one) for one in partition.open_txns)
        for subscription in partition.subscriptions:
            found.update(TxnID.from_wire(one) for one in subscription.pending_txns)
    return found
