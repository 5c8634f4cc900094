"""A producer and a transaction of the SDK whose steps the history knows.

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

import magnetar
from magnetar.testing.lives import CURRENT
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
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
