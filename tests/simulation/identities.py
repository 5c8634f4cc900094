"""Transactional ids with a database, and what is kept of named sequences.

What they keep outside of Magnetar (a database, a checkpoint) lies in the world: it survives their
crashes, and changes at one moment, as a database's commit does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.history import Sent, TransactionRecord
from tests.simulation.nodes import ClientNode
from tests.simulation.sdk_unit import COMMIT_ATTEMPTS, with_client

import magnetar
from magnetar import PreparedTxnState, TransactionalState
from magnetar_core.errors import (
    ConcurrentTransactions,
    DataLoss,
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    ProducerFenced,
    TransactionalIdNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass
class Database:
    """What a dual writer keeps.

    Attributes:
        owner: who may write, as it claimed it last.
        state: PreparedTxnState, as text.
        committed: transactions whose data are there.
    """

    owner: str = ""
    state: str = ""
    committed: list[TransactionRecord] = field(default_factory=list)


@dataclass
class Takeover:
    """The newest instance of a transactional id, and since when it knows."""

    instance: str = ""
    at: float = 0.0
    pair: tuple[int, int] = (-1, -1)


@dataclass
class InitCall:
    """A call of init(): it may be carried out from `asked_at` to `done_at`."""

    instance: str
    asked_at: float
    done_at: float


# After so long nothing of a process that died is under way any more, nor of a call that gave up.
INIT_CALL_SECONDS_MAX = 120.0


@dataclass
class Job:
    """What a driver of named sequences keeps.

    Attributes:
        sequence: the next one to do.
        runs: transactions that were begun, by sequence.
        told: what a repeat was told of the committed content, which is its TxnID here.
    """

    sequence: int = 0
    runs: dict[int, dict[TxnID, None]] = field(default_factory=dict)
    told: dict[int, str | None] = field(default_factory=dict)


class Instance:
    """One life of a transactional producer, whose steps the history knows."""

    def __init__(self, world: World, client: magnetar.Client, node: ClientNode, name: str) -> None:
        self.world = world
        self.name = name
        self.label = f"{node.name}/{node.life}/{world.loop.time():.6f}"
        self.producer = client.transactional_producer(name, two_phase_commit=True)
        self.record: TransactionRecord | None = None
        self.accepted: list[Sent] = []

    async def init(self) -> PreparedTxnState:
        now = self.world.loop.time()
        call = InitCall(self.label, now, now + INIT_CALL_SECONDS_MAX)
        self.world.init_calls.setdefault(self.name, []).append(call)
        state = await self.producer.init(keep_prepared=True)
        call.done_at = self.world.loop.time()
        # Answers overtake each other; pairs rise in the order of the coordinator's decisions.
        _, producer_id, epoch = self.producer.identity
        takeover = Takeover(self.label, self.world.loop.time(), (producer_id, epoch))
        newest = self.world.takeovers.setdefault(self.name, takeover)
        if newest.pair < takeover.pair:
            self.world.takeovers[self.name] = takeover
        return state

    def succeeded(self, asked_at: float) -> None:
        """Something that only the newest instance may do was done."""
        takeover = self.world.takeovers[self.name]
        if takeover.instance != self.label and takeover.at < asked_at:
            self.world.history.violation(
                "o", f"{self.label} acts for {self.name}, taken over by {takeover.instance}"
            )

    def fenced(self) -> None:
        """That needs another instance which has taken over, or is about to."""
        calls = self.world.init_calls[self.name]
        own = next(call for call in calls if call.instance == self.label)
        if not any(call is not own and call.done_at >= own.asked_at for call in calls):
            self.world.history.violation(
                "o", f"{self.label} is fenced, and nobody has taken {self.name} over"
            )

    async def begin(self) -> None:
        asked_at = self.world.loop.time()
        await self.producer.begin()
        self.succeeded(asked_at)
        transaction = self.producer.transaction
        assert transaction is not None
        self.record = self.world.history.begin(transaction.txn_id, self.label)
        self.accepted = []

    async def send(self, random: Random, writer: str, *, wait: bool) -> None:
        history = self.world.history
        topic, partition = random.choice(("in", "mix")), random.randrange(2)
        assert self.record is not None
        message = history.send(f"{writer}/{self.label}/{topic}", topic, partition, self.record)
        asked_at = self.world.loop.time()
        if wait:
            await self.producer.send(topic, message.value, partition=partition)
            history.confirm(message, asked_at=asked_at)
        else:
            await self.producer.enqueue(topic, message.value, partition=partition)
        self.accepted.append(message)

    async def commit(self) -> None:
        """What may not fail any more, unless another instance does it."""
        history, record = self.world.history, self.record
        assert record is not None
        for _ in range(COMMIT_ATTEMPTS):
            asked_at = self.world.loop.time()
            try:
                await self.producer.commit()
            except OutcomeUnknown:
                continue
            self.succeeded(asked_at)
            history.told(record, common_pb2.COMMITTING, asked_at=asked_at)
            return

    async def abort(self) -> None:
        record = self.record
        assert record is not None
        self.world.history.ask_abort(record)
        asked_at = self.world.loop.time()
        await self.producer.abort()
        self.succeeded(asked_at)
        self.world.history.told(record, common_pb2.ABORTING, asked_at=asked_at)


async def recover(world: World, instance: Instance, *, pause_s: float = 0.0) -> None:
    """Recovery recipe. The database decides.

    Args:
        pause_s: for so long it is not completed what was found.
    """
    database = world.databases.setdefault(instance.name, Database())
    kept = await instance.init()
    if pause_s:
        await asyncio.sleep(pause_s)
    database.owner = instance.label
    held = PreparedTxnState.parse(database.state)
    try:
        await instance.producer.check_outcome(held)
    except DataLoss as error:
        world.history.violation("o", f"{instance.name}: {error}")
    record = None if kept.txn_id is None else world.history.transactions.get(kept.txn_id)
    asked_at = world.loop.time()
    committed = await instance.producer.complete(held)
    if kept.txn_id is not None:
        instance.succeeded(asked_at)
    if record is not None:
        world.provoked["o completed"] += 1
        status = common_pb2.COMMITTING if committed else common_pb2.ABORTING
        world.history.told(record, status, asked_at=asked_at)


async def one_unit(world: World, node: ClientNode, instance: Instance, random: Random) -> None:
    """Normal processing recipe."""
    database = world.databases[instance.name]
    await instance.begin()
    fate = random.random()
    try:
        for _ in range(random.randint(1, 4)):
            await instance.send(random, node.name, wait=random.random() < 0.3)
        if fate < 0.1:
            await instance.abort()
            return
        state = await instance.producer.prepare()
    except ProducerFenced:
        raise
    except (magnetar.CommitRefused, InvalidTxnState):
        raise
    except MagnetarError:
        await instance.abort()
        return
    await asyncio.sleep(random.choice((0.0, 0.0, 0.05, 0.5)))
    if fate < 0.2 or database.owner != instance.label:
        await instance.abort()
        return
    # The database commits.
    database.state = str(state)
    assert instance.record is not None
    database.committed.append(instance.record)
    world.history.ask_commit(instance.record, expected=instance.accepted)
    await asyncio.sleep(random.choice((0.0, 0.0, 0.05)))
    await instance.commit()
    world.history.counts["dual writes"] += 1


async def complete_by_hand(world: World, client: magnetar.Client, name: str) -> None:
    """An administrator completes what a database names, though its program may live and go on."""
    state = PreparedTxnState.parse(world.databases[name].state)
    if state.txn_id is None:
        return
    now = world.loop.time()
    call = InitCall("administrator", now, now + INIT_CALL_SECONDS_MAX)
    world.init_calls.setdefault(name, []).append(call)
    try:
        did = await client.admin.transactional_ids.complete(name, state)
    except DataLoss as error:
        world.history.violation("o", f"{name}: {error}")
    except ConcurrentTransactions:
        return
    call.done_at = world.loop.time()
    world.history.told(
        world.history.transactions[state.txn_id], common_pb2.COMMITTING, asked_at=now
    )
    world.provoked["o by hand"] += did


async def recover_all(world: World, node: ClientNode) -> None:
    """At the end: whatever dead writers left undecided is decided by their databases."""
    for name in sorted(world.databases):
        database = world.databases[name]

        async def work(
            client: magnetar.Client, random: Random, name: str = name, database: Database = database
        ) -> None:
            await recover(world, Instance(world, client, node, name))
            node.stopping = True

        await with_client(world, node, work)
        node.stopping = False


async def terminate_all(world: World, node: ClientNode) -> None:
    """At the end: nobody else decides about the transactions of those that are terminated."""
    for name in world.victims:

        async def work(client: magnetar.Client, random: Random, name: str = name) -> None:
            transactional_ids = client.admin.transactional_ids
            try:
                found = await transactional_ids.describe(name)
            except TransactionalIdNotFound:
                pass
            else:
                if found.state is TransactionalState.ONGOING and found.txn_id is not None:
                    await transactional_ids.force_terminate(name, found.txn_id, abort_prepared=True)
            node.stopping = True

        await with_client(world, node, work)
        node.stopping = False
