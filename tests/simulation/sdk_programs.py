"""Client processes that use the SDK as an application would.

Each tells the history what it is about to do, and what it was then told.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import COMMIT_STATUSES, Sent, TransactionRecord
from tests.simulation.nodes import ClientNode
from tests.simulation.one_by_one import receive_some
from tests.virtual_loop import CURRENT

import magnetar
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    TransactionConflict,
)
from magnetar_core.wire import common_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT_ATTEMPTS = 4


class Writer:
    """An SDK producer whose messages the history knows."""

    def __init__(self, world: World, producer: magnetar.Producer, name: str) -> None:
        self.world = world
        self.producer = producer
        self.name = name
        self.topic = producer.topic
        self._unflushed: list[tuple[Sent, float]] = []

    @classmethod
    async def make(
        cls,
        world: World,
        node: ClientNode,
        client: magnetar.Client,
        topic: str,
        *,
        in_order: bool = False,
    ) -> Writer:
        """Args: in_order: of all messages; else perhaps of each key only."""
        batching = "mixed" if in_order else world.random.choice(("mixed", "by_key"))
        producer = await client.create_producer(
            topic,
            linger_ms=world.random.choice((0.0, 1.0)),
            batch_messages_max=8,
            batching=batching,
        )
        world.writer_count += 1
        name = f"{node.name}/{world.writer_count}"
        if batching == "by_key":
            world.history.by_key.add(name)
        return cls(world, producer, name)

    async def plain(self, partition: int, *, wait: bool) -> None:
        """Send plainly."""
        history = self.world.history
        message = history.send(self.name, self.topic, partition)
        asked_at = self.world.loop.time()
        history.counts["plain sends"] += 1
        if not wait:
            self.producer.send_nowait(message.value, message.key, partition=partition)
            self._unflushed.append((message, asked_at))
            return
        # It may have to wait for room, and then what others send meanwhile comes before it.
        message.until = math.inf
        try:
            message_id = await self.producer.send(message.value, message.key, partition=partition)
        except MagnetarError as error:
            told = f"{error} {error.advice}"
            message.denied = told if "No effect" in told else ""
            raise
        message.until = history.next_position()
        assert isinstance(message_id, magnetar.MessageId)
        history.confirm(message, asked_at=asked_at, offset=message_id.offset)

    @property
    def has_unflushed(self) -> bool:
        """Whether messages were sent of which nobody has heard that they are stored."""
        return bool(self._unflushed)

    async def flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        await self.producer.flush()
        for message, asked_at in unflushed:
            self.world.history.confirm(message, asked_at=asked_at)


class Unit:
    """One SDK transaction whose steps the history knows."""

    def __init__(self, world: World, txn: magnetar.Transaction, owner: str) -> None:
        self.world = world
        self.txn = txn
        self.record: TransactionRecord = world.history.begin(txn.txn_id, owner)
        # What the SDK took without complaint; a commit makes exactly this visible.
        self.accepted: list[Sent] = []

    async def send(self, writer: Writer, partition: int, *, wait: bool) -> Sent:
        history = self.world.history
        message = history.send(writer.name, writer.topic, partition, self.record)
        return await self.send_message(writer, message, wait=wait)

    async def send_message(self, writer: Writer, message: Sent, *, wait: bool) -> Sent:
        producer = writer.producer
        asked_at = self.world.loop.time()
        if wait:
            await producer.send(
                message.value, message.key, partition=message.place[1], txn=self.txn
            )
            self.world.asked_wiretap.check_counted(self.txn.txn_id, *message.place)
            self.world.history.confirm(message, asked_at=asked_at)
        else:
            producer.send_nowait(
                message.value, message.key, partition=message.place[1], txn=self.txn
            )
        self.accepted.append(message)
        return message

    async def commit(self, random: Random) -> bool:
        """Whether it is committed, as far as this client was told."""
        history = self.world.history
        record = self.record
        history.ask_commit(record, expected=self.accepted)
        for _ in range(COMMIT_ATTEMPTS):
            asked_at = self.world.loop.time()
            try:
                await self.txn.commit(wait_finished=random.random() < 0.3)
            except (magnetar.CommitRefused, InvalidTxnState):
                self.check_status()
                history.never_commits(record)
                history.counts["commits refused"] += 1
                return False
            except OutcomeUnknown:
                self.said_unknown()
                history.counts["outcomes unknown"] += 1
                continue
            except MagnetarError as error:
                if not error.retriable:
                    raise
                continue
            for message in self.accepted:
                message.confirmed = True
            self.check_status()
            history.told(record, self.txn.status, asked_at=asked_at)
            return True
        return False

    def check_status(self) -> None:
        """The SDK says no more of it than it was told."""
        if int(self.txn.status) in COMMIT_STATUSES:
            self.world.asked_wiretap.check_committed(self.txn.txn_id)

    def said_unknown(self) -> None:
        """The SDK does not know whether it is committed."""
        client = CURRENT.get()
        assert client is not None
        self.world.follow_wiretap.said_unknown(client, self.txn.txn_id)

    async def abort(self) -> None:
        history = self.world.history
        history.ask_abort(self.record)
        asked_at = self.world.loop.time()
        try:
            await self.txn.abort()
        except InvalidTxnState:
            if not self.record.commit_asked:
                history.violation("7", f"{self.txn.txn_id} is committed, nobody asked for it")
            self.check_status()
            history.told(self.record, common_pb2.COMMITTING, asked_at=asked_at)
        except MagnetarError:
            return
        else:
            history.told(self.record, common_pb2.ABORTING, asked_at=asked_at)


Work = Callable[[magnetar.Client, Random], Coroutine[Any, Any, None]]


async def with_client(world: World, node: ClientNode, work: Work) -> None:
    """Run work until it returns; a failure makes a new client and starts it again."""
    random = world.environment.random(f"program/{node.name}/{node.life}")
    while not node.stopping:
        try:
            client = await magnetar.connect(
                world.bootstrap(node.name),
                transport=node.transport(),
                clock=node.clock,
                random=Random(random.getrandbits(64)),
                config=world.client_config,
            )
        except MagnetarError:
            await asyncio.sleep(random.uniform(0.05, 0.5))
            continue
        try:
            await work(client, random)
        except MagnetarError as error:
            world.note_client_failure(node, error)
            await asyncio.sleep(random.uniform(0.0, 0.2))
        await client.close()


async def atomic_producer(world: World, node: ClientNode) -> None:
    """Transactions over several partitions, with plain sends between them."""

    async def work(client: magnetar.Client, random: Random) -> None:
        writers = [await Writer.make(world, node, client, topic) for topic in ("in", "mix")]
        while not node.stopping:
            await one_transaction(world, node, client, writers, random)
            if random.random() < 0.2:
                await one_whole_batch(client, random.choice(writers), random)
            if random.random() < 0.5:
                # Rule k: right after the commit, on the partitions that it wrote.
                for _ in range(random.randint(1, 3)):
                    writer = random.choice(writers)
                    await writer.plain(random.randrange(2), wait=random.random() < 0.6)
            if random.random() < 0.3:
                await asyncio.sleep(random.uniform(0.0, 0.05))
            if random.random() < 0.2:
                for writer in writers:
                    await writer.flush()
        for writer in writers:
            await writer.flush()

    await with_client(world, node, work)


async def one_transaction(
    world: World,
    node: ClientNode,
    client: magnetar.Client,
    writers: list[Writer],
    random: Random,
) -> None:
    timeout_s = random.choice((0.5, 2.0, 5.0))
    unit = Unit(world, await client.begin_transaction(timeout_s), node.name)
    fate = random.random()
    try:
        for _ in range(random.randint(0 if random.random() < 0.1 else 1, 6)):
            writer = random.choice(writers)
            await unit.send(writer, random.randrange(2), wait=random.random() < 0.3)
            if random.random() < 0.1:
                # Plain messages between a transaction's own: visible at once, so before them.
                await random.choice(writers).plain(random.randrange(2), wait=True)
        if 0.80 <= fate < 0.86 and not world.hurry:
            # A zombie: wakes after its transaction has expired, and goes on.
            world.history.counts["pauses"] += 1
            await asyncio.sleep(timeout_s + random.uniform(0.0, 1.0))
            await unit.send(random.choice(writers), random.randrange(2), wait=True)
    except MagnetarError:
        await unit.abort()
        return
    if fate < 0.65 or fate >= 0.80:
        await unit.commit(random)
    elif fate < 0.76:
        await unit.abort()
    else:
        world.history.counts["abandoned"] += 1


async def one_whole_batch(client: magnetar.Client, writer: Writer, random: Random) -> None:
    """A lazy transaction that never has to begin."""
    history = writer.world.history
    partition = random.randrange(2)
    txn = await client.begin_transaction(lazy=True)
    messages = [history.send(writer.name, writer.topic, partition) for _ in range(3)]
    asked_at = writer.world.loop.time()
    for message in messages:
        # Of one key: more of them would not fit one batch, where these are made by key.
        message.key = messages[0].key
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
        for message in messages:
            history.confirm(message, asked_at=asked_at)
        break
    history.wholes.append((messages, False))


async def plain_producer(world: World, node: ClientNode) -> None:
    """Plain messages in order, on the same partitions as the transactions."""

    async def work(client: magnetar.Client, random: Random) -> None:
        writer = await Writer.make(world, node, client, random.choice(("in", "mix")))
        while not node.stopping:
            for _ in range(random.randint(1, 4)):
                await writer.plain(random.randrange(2), wait=False)
            if random.random() < 0.4:
                await writer.plain(random.randrange(2), wait=True)
            if random.random() < 0.5:
                await writer.flush()
            await asyncio.sleep(random.uniform(0.02, 0.2))
        await writer.flush()

    await with_client(world, node, work)


async def worker(world: World, node: ClientNode) -> None:
    """Consumes, transforms, produces: inputs acknowledged in the transaction of the outputs."""

    async def work(client: magnetar.Client, random: Random) -> None:
        writer = await Writer.make(world, node, client, "out")
        consumer = await client.subscribe(
            "in",
            "work",
            type=world.worker_type,
            initial_position="earliest",
            consumer_name=node.name,
            receiver_queue_messages=random.choice((4, 16, 64)),
            nack_delay_ms=50,
            nack_delay_ms_max=400,
        )
        # What was given back is covered by a later cumulative ack: then only individual ones.
        cumulative = world.worker_type not in ("shared", "key_shared")
        while not node.stopping:
            messages = await receive_some(consumer, random.choice((1, 2, 4, 16)), timeout_s=0.5)
            for message in messages:
                world.saw(message)
            if messages and not await process(
                world, node, client, consumer, writer, messages, random, cumulative=cumulative
            ):
                # Those that the transaction did acknowledge come again by themselves.
                consumer.nack_many(messages)
                cumulative = False

    await with_client(world, node, work)


async def process(
    world: World,
    node: ClientNode,
    client: magnetar.Client,
    consumer: magnetar.Consumer,
    writer: Writer,
    messages: list[magnetar.Message],
    random: Random,
    *,
    cumulative: bool,
) -> bool:
    """One transaction: an output for each input. Returns whether it acknowledged them."""
    timeout_s = random.choice((1.0, 3.0))
    try:
        txn = await client.begin_transaction(timeout_s)
    except MagnetarError as error:
        world.note_client_failure(node, error)
        return False
    unit = Unit(world, txn, node.name)
    history = world.history
    fate = random.random() if not world.hurry else 0.0
    try:
        for message in messages:
            output = history.send(writer.name, "out", random.randrange(2), unit.record)
            output.input = (("in", message.partition, "work"), message.offset)
            await unit.send_message(writer, output, wait=random.random() < 0.1)
        if 0.90 <= fate < 0.94:
            await asyncio.sleep(timeout_s + random.uniform(0.0, 1.0))
        offsets: dict[int, list[magnetar.Message]] = {}
        for message in messages:
            offsets.setdefault(message.partition, []).append(message)
        for partition, some in offsets.items():
            history.ack(("in", partition, "work"), [one.offset for one in some], unit.record)
        asked_at = world.loop.time()
        if cumulative and random.random() < 0.5:
            for some in offsets.values():
                newest = max(some, key=lambda one: one.offset)
                await consumer.ack_cumulative(newest, txn=txn)
        else:
            await consumer.ack_many(messages, txn=txn)
        for partition, some in offsets.items():
            history.ack_confirmed(
                ("in", partition, "work"),
                [one.offset for one in some],
                unit.record,
                asked_at=asked_at,
            )
    except MagnetarError as error:
        if isinstance(error, TransactionConflict):
            history.counts["conflicts"] += 1
        await unit.abort()
        return False
    if 0.78 <= fate < 0.90:
        await unit.abort()
    elif fate >= 0.96:
        history.counts["abandoned"] += 1
    else:
        committed = await unit.commit(random)
        if committed:
            history.counts["inputs processed"] += len(messages)
    return True


async def plain_consumer(world: World, node: ClientNode) -> None:
    """Consumes with plain acks, and gives some messages back."""

    async def work(client: magnetar.Client, random: Random) -> None:
        consumer = await client.subscribe(
            "mix",
            "audit",
            type="key_shared" if world.worker_type == "key_shared" else "shared",
            initial_position="earliest",
            consumer_name=node.name,
            receiver_queue_messages=random.choice((8, 64)),
            ack_linger_ms=random.choice((0.0, 5.0)),
            nack_delay_ms=30,
            nack_delay_ms_max=200,
        )
        history = world.history
        while not node.stopping:
            messages = await receive_some(consumer, random.choice((1, 4, 16)), timeout_s=0.5)
            for message in messages:
                world.saw(message)
            if not world.hurry and random.random() < 0.2:
                consumer.nack_many(messages)
                history.counts["nacks"] += len(messages)
                continue
            for message in messages:
                history.ack(("mix", message.partition, "audit"), [message.offset], None)
            if random.random() < 0.5:
                await consumer.ack_many(messages)
            else:
                for message in messages:
                    consumer.ack_nowait(message)
                await consumer.flush_acks()
            for message in messages:
                cursor = ("mix", message.partition, "audit")
                history.ack_confirmed(cursor, [message.offset], None, asked_at=world.loop.time())

    await with_client(world, node, work)
