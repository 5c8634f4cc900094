"""Client processes that speak the protocol by hand: observers, administrators, zombies."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Sent, TransactionRecord
from tests.simulation.nodes import ClientNode
from tests.simulation.raw import BROKER, COORDINATOR, NoAnswer, RawClient, messages_of, send_command

from magnetar_core.errors import (
    Gone,
    InvalidTxnState,
    MagnetarError,
    OutOfRange,
    ResourceInUse,
    SequenceGap,
    SubscriptionNotFound,
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT = common_pb2.COMMIT
ABORT = common_pb2.ABORT


def raw_client(world: World, node: ClientNode) -> RawClient:
    return RawClient(
        node.name,
        node.transport(),
        {BROKER: world.broker.name, COORDINATOR: world.coordinator.name},
    )


async def read_new(world: World, client: RawClient, topic: str, partition: int, start: int) -> int:
    """Read what there is from an offset on. Returns where the next read begins."""
    reply = await client.read(topic, partition, start, messages_max=64)
    for delivered in reply.batches:
        txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
        for offset, value in messages_of(delivered):
            if offset >= start:
                world.history.saw(topic, partition, offset, value, txn_id)
    return reply.next_offset


async def observer(world: World, node: ClientNode) -> None:
    """Reads every partition, again and again: what was seen once must stay as it was."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    offsets = {place: 0 for place in world.places}
    while not node.stopping:
        for place in world.places:
            start = offsets[place]
            if random.random() < 0.2:
                start = random.randint(0, start)
            try:
                following = await read_new(world, client, *place, start)
            except OutOfRange:
                description = await client.describe_topic(place[0])
                offsets[place] = max(start, description.partitions[place[1]].first_offset)
                continue
            except MagnetarError as error:
                world.note_client_failure(node, error)
                continue
            offsets[place] = max(offsets[place], following)
        await asyncio.sleep(random.uniform(0.03, 0.3))


async def inspector(world: World, node: ClientNode) -> None:
    """Asks about topics and transactions; compares with what was told before."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    while not node.stopping:
        await asyncio.sleep(random.uniform(0.2, 0.6))
        topic = random.choice(("in", "mix"))
        try:
            description = await client.describe_topic(topic)
        except MagnetarError as error:
            world.note_client_failure(node, error)
            continue
        world.check_description(description)
        known = list(world.history.transactions.values())
        for txn in random.sample(known, min(3, len(known))):
            await ask_status(world, client, txn)


async def ask_status(world: World, client: RawClient, txn: TransactionRecord) -> int:
    """The status that the coordinator tells of a transaction."""
    asked_at = world.loop.time()
    try:
        description = await client.describe_txn(txn.txn_id)
    except (TxnNotFound, TxnForgotten) as error:
        world.history.violation("2", f"{txn.txn_id} was issued; its coordinator says {error!r}")
    world.history.told(txn, description.status, asked_at=asked_at)
    return description.status


class RawUnit:
    """One transaction by hand, with as many producers as wanted."""

    def __init__(self, world: World, client: RawClient, random: Random, name: str) -> None:
        self.world = world
        self.client = client
        self.random = random
        self.name = name
        self.record: TransactionRecord
        self.txn_id: TxnID
        self._next_sequence: dict[tuple[int, str, int], int] = {}
        self._added: dict[tuple[str, int], common_pb2.Partition] = {}
        # Confirmed messages by partition and producer.
        self.confirmed: dict[tuple[str, int, int], list[Sent]] = {}

    async def begin(self, timeout_ms: int) -> None:
        self.txn_id = await self.client.new_txn(timeout_ms)
        self.record = self.world.history.begin(self.txn_id, self.name)

    async def partition(
        self, topic: str, partition: int, *, add: bool = True
    ) -> common_pb2.Partition:
        known = self._added.get((topic, partition))
        if known is not None:
            return known
        topic_id = await self.client.lookup(topic)
        wire = common_pb2.Partition(topic=topic, partition=partition, topic_id=topic_id)
        if add:
            await self.client.add_partition(self.txn_id, wire)
            self._added[topic, partition] = wire
        return wire

    async def send(
        self, producer_id: int, topic: str, partition: int, *, add: bool = True, count: int = 1
    ) -> list[Sent]:
        """Send until confirmed. Raises: MagnetarError: refused."""
        wire = await self.partition(topic, partition, add=add)
        history = self.world.history
        name = f"{self.name}:{producer_id}"
        sent = [history.send(name, topic, partition, self.record) for _ in range(count)]
        key = (producer_id, topic, partition)
        sequence = self._next_sequence.get(key, 0)
        asked_at = self.world.loop.time()
        await self.client.insist(
            BROKER,
            send_command(
                wire, producer_id, sequence, [one.value for one in sent], txn_id=self.txn_id
            ),
        )
        self._next_sequence[key] = sequence + count
        for one in sent:
            history.confirm(one, asked_at=asked_at)
        self.confirmed.setdefault((topic, partition, producer_id), []).extend(sent)
        return sent

    def end_command(
        self,
        action: int,
        *,
        counts: dict[tuple[str, int, int], int] | None = None,
        selected: list[int] | None = None,
        wait_finished: bool = False,
    ) -> transaction_pb2.CommandEndTxn:
        """EndTxn; counts by partition and producer, left out with None."""
        command = transaction_pb2.CommandEndTxn(
            txn_id=self.txn_id.to_wire(), txn_action=action, wait_finished=wait_finished
        )
        if counts is not None:
            command.counts_given = True
            for (topic, partition), wire in self._added.items():
                command.partition_counts.append(
                    transaction_pb2.PartitionCounts(
                        partition=wire,
                        producers=[
                            transaction_pb2.WriterCount(writer_id=producer_id, count=count)
                            for (one, number, producer_id), count in counts.items()
                            if (one, number) == (topic, partition)
                        ],
                    )
                )
        if selected is not None:
            command.selection_given = True
            command.selected_writer_ids.extend(selected)
        return command

    def confirmed_counts(self) -> dict[tuple[str, int, int], int]:
        return {key: len(sent) for key, sent in self.confirmed.items()}

    def confirmed_messages(self, producer_ids: list[int] | None = None) -> list[Sent]:
        return [
            message
            for (_, _, producer_id), sent in self.confirmed.items()
            if producer_ids is None or producer_id in producer_ids
            for message in sent
        ]

    async def end(self, command: transaction_pb2.CommandEndTxn, *, patience: int = 40) -> int:
        """Ask for an end until answered. Raises: MagnetarError: refused; NoAnswer."""
        asked_at = self.world.loop.time()
        if command.txn_action == ABORT:
            self.world.history.ask_abort(self.record)
        reply = await self.client.insist(COORDINATOR, command, attempts=patience)
        self.world.history.told(self.record, reply.status, asked_at=asked_at)
        return reply.status


async def sloppy(world: World, node: ClientNode) -> None:
    """Administrators, zombies and clients that count wrongly, by turns."""
    client = raw_client(world, node)
    random = world.environment.random(f"program/{node.name}/{node.life}")
    number = 0
    tricks = (
        selective_commit,
        surplus,
        orphan,
        lost_messages,
        zombie_sender,
        zombie_acker,
        contrary_ends,
        end_without_counts,
        end_of_nothing,
        deletion,
        acks_in_doubt,
    )
    while not node.stopping:
        number += 1
        trick = random.choice(world.tricks or tricks)
        unit = RawUnit(world, client, random, f"{node.name}.{node.life}.{number}")
        try:
            await trick(world, unit, random)
        except (MagnetarError, NoAnswer) as error:
            world.note_client_failure(node, error)
        await asyncio.sleep(random.uniform(0.0, 0.1))


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
        if any(one.last_error for one in description.unfinished):
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


async def zombie_acker(world: World, unit: RawUnit, random: Random) -> None:
    """Rule d: acks of an ended transaction are refused, also where it had none."""
    await unit.begin(5_000)
    topic_id = await unit.client.lookup("mix")
    name = common_pb2.Subscription(
        topic="mix", subscription="audit", partition=random.randrange(2), topic_id=topic_id
    )
    await unit.client.add_subscription(unit.txn_id, name)
    await unit.end(unit.end_command(ABORT, wait_finished=True))
    asked_at = world.loop.time()
    try:
        await unit.client.insist(
            BROKER,
            broker_pb2.CommandAck(
                subscription=name,
                consumer_id=random.getrandbits(63),
                ranges=[common_pb2.OffsetRange(first=0, last=0)],
                txn_id=unit.txn_id.to_wire(),
            ),
        )
    except (InvalidTxnState, SubscriptionNotFound):
        world.provoked["d"] += 1
        return
    world.history.ack_confirmed(
        ("mix", name.partition, "audit"), [0], unit.record, asked_at=asked_at
    )


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


async def deletion(world: World, unit: RawUnit, random: Random) -> None:
    """Rule j: what open transactions hold cannot be deleted; what is gone counts as done."""
    world.temporary_count += 1
    topic = f"temporary-{world.temporary_count}"
    client = unit.client
    await client.create_topic(topic, 1)
    await unit.begin(3_000)
    producer_id = random.getrandbits(63)
    try:
        await unit.send(producer_id, topic, 0)
    except InvalidTxnState:
        return
    asked_at = world.loop.time()
    try:
        await client.ask(BROKER, topic_pb2.CommandDeleteTopic(topic=topic))
    except ResourceInUse:
        world.provoked["j"] += 1
    except NoAnswer:
        pass
    else:
        status = await ask_status(world, client, unit.record)
        if status == common_pb2.OPEN and asked_at is not None:
            world.history.violation("j", f"{topic} was deleted while {unit.txn_id} was open there")
    if random.random() < 0.5:
        world.history.ask_commit(unit.record)
        await unit.end(unit.end_command(COMMIT, counts=unit.confirmed_counts(), wait_finished=True))
    else:
        await unit.end(unit.end_command(ABORT, wait_finished=True))
    try:
        await client.insist(BROKER, topic_pb2.CommandDeleteTopic(topic=topic), attempts=20)
    except TopicNotFound:
        pass
    try:
        wire = common_pb2.Partition(topic=topic, partition=0, topic_id=1 << 40)
        await client.ask(BROKER, send_command(wire, producer_id, 0, [b"nobody"]))
    except (TopicNotFound, Gone):
        pass


async def acks_in_doubt(world: World, unit: RawUnit, random: Random) -> None:
    """Rule i: a seek is refused while acks pend; what an abort gives back is delivered again."""
    client = unit.client
    await unit.begin(4_000)
    topic_id = await client.lookup("out")
    partition = random.randrange(2)
    name = common_pb2.Subscription(
        topic="out", subscription=f"doubt-{unit.name}", partition=partition, topic_id=topic_id
    )
    held = await attach(client, name, random.getrandbits(63))
    for offset, value, txn_id in held.messages:
        world.history.saw("out", partition, offset, value, txn_id)
    if not held.messages:
        await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))
        await unit.end(unit.end_command(ABORT))
        return
    await client.add_subscription(unit.txn_id, name)
    first = held.messages[0][0]
    cursor = ("out", partition, name.subscription)
    world.history.ack(cursor, [first], unit.record)
    asked_at = world.loop.time()
    await client.insist(
        BROKER,
        broker_pb2.CommandAck(
            subscription=name,
            consumer_id=held.consumer_id,
            ranges=[common_pb2.OffsetRange(first=first, last=first)],
            txn_id=unit.txn_id.to_wire(),
        ),
    )
    world.history.ack_confirmed(cursor, [first], unit.record, asked_at=asked_at)
    try:
        await client.insist(BROKER, broker_pb2.CommandSeek(subscription=name, offset=0))
    except ResourceInUse:
        world.provoked["i"] += 1
    else:
        if await ask_status(world, client, unit.record) == common_pb2.OPEN:
            world.history.violation("i", f"seek of {name.subscription} while an ack pends")
    world.check_description(await client.describe_topic("out"))
    await unit.end(unit.end_command(ABORT, wait_finished=True))
    client.hang_up(BROKER)
    again = await attach(client, name, random.getrandbits(63))
    if first not in [offset for offset, _, _ in again.messages]:
        world.history.violation("6", f"{cursor} {first} did not come again after the abort")
    await client.insist(BROKER, broker_pb2.CommandUnsubscribe(subscription=name))


async def first_sequence(world: World, unit: RawUnit, random: Random) -> None:
    """Rule l: an unknown producer begins at 0; anything else means that something was forgotten."""
    topic_id = await unit.client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=random.randrange(2), topic_id=topic_id)
    sent = world.history.send(f"{unit.name}:unknown", "mix", wire.partition)
    command = send_command(wire, random.getrandbits(63), random.randint(1, 9), [sent.value])
    try:
        await unit.client.insist(BROKER, command, attempts=20)
    except SequenceGap:
        world.provoked["l"] += 1
        return
    world.history.violation("4", f"{sent} of an unknown producer was taken without its first")


async def late_reader(world: World, unit: RawUnit, random: Random) -> None:
    """Rule m: who reads what retention removed is told so; silence would look like an empty log."""
    topic, partition = random.choice(world.places)
    description = await unit.client.describe_topic(topic)
    first_offset = description.partitions[partition].first_offset
    if first_offset == 0:
        return
    try:
        await unit.client.read(topic, partition, random.randrange(first_offset))
    except OutOfRange:
        world.provoked["m"] += 1
        return
    world.history.violation("m", f"{topic}/{partition} was read below {first_offset}")


async def old_incarnation(world: World, unit: RawUnit, random: Random) -> None:
    """Rule n: a coordinator from before a restore is refused, but for ends."""
    tcid = 100 + random.randrange(1_000)
    client = unit.client
    token = f"{unit.name}-first"
    first = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=token)
    )
    again = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=token)
    )
    if first.incarnation != again.incarnation:
        world.history.violation("8", f"token {token} got two incarnations")
    second = await client.insist(
        BROKER, topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=f"{unit.name}-second")
    )
    if second.incarnation <= first.incarnation:
        world.history.violation("8", f"incarnation {second.incarnation} of {tcid} is not new")
    await client.insist(
        BROKER,
        transaction_pb2.CommandLowWatermark(
            tcid=tcid, incarnation=second.incarnation, low_watermark=10
        ),
    )
    topic_id = await client.lookup("mix")
    wire = common_pb2.Partition(topic="mix", partition=0, topic_id=topic_id)
    old = TxnID.of(tcid, first.incarnation, 1_000)
    for body in (
        transaction_pb2.CommandLowWatermark(
            tcid=tcid, incarnation=first.incarnation, low_watermark=20
        ),
        send_command(wire, random.getrandbits(63), 0, [b"of an old incarnation"], txn_id=old),
    ):
        try:
            await client.insist(BROKER, body, attempts=20)
        except MagnetarError:
            world.provoked["n"] += 1
            continue
        world.history.violation("n", f"an old incarnation was heard: {body}")


class Attached:
    """What a consumer got."""

    def __init__(self, consumer_id: int) -> None:
        self.consumer_id = consumer_id
        self.messages: list[tuple[int, bytes, TxnID | None]] = []


async def attach(
    client: RawClient, name: common_pb2.Subscription, consumer_id: int, *, seconds: float = 2.0
) -> Attached:
    """Subscribe, and take what comes until something did, or time runs out."""
    attached = Attached(consumer_id)
    got = asyncio.Event()

    def on_push(one: Any) -> None:
        if one.WhichOneof("body") != "deliver" or one.deliver.consumer_id != consumer_id:
            return
        for delivered in one.deliver.batches:
            txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
            for offset, value in messages_of(delivered):
                attached.messages.append((offset, value, txn_id))
        got.set()

    for _ in range(60):
        try:
            session = await client.session(BROKER)
            session.on_push = on_push
            await session.ask(
                broker_pb2.CommandSubscribe(
                    subscription=name,
                    consumer_id=consumer_id,
                    type=broker_pb2.SHARED,
                    initial_position=broker_pb2.EARLIEST,
                    consumer_name=client.name,
                )
            )
            session.post(
                broker_pb2.CommandFlow(subscription=name, consumer_id=consumer_id, permits=8)
            )
        except NoAnswer:
            client.hang_up(BROKER)
            await asyncio.sleep(0.2)
            continue
        try:
            async with asyncio.timeout(seconds):
                await got.wait()
            return attached
        except TimeoutError:
            if not session.closed:
                return attached
    return attached
