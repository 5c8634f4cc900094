"""Client processes with transactional ids and named sequences.

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
from tests.simulation.sdk_programs import COMMIT_ATTEMPTS, Writer, with_client

import magnetar
from magnetar import PreparedTxnState
from magnetar_core.errors import (
    ConcurrentTransactions,
    DataLoss,
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    ProducerFenced,
    SequenceCommitted,
    SequenceTooOld,
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
        own = next(one for one in calls if one.instance == self.label)
        if not any(one is not own and one.done_at >= own.asked_at for one in calls):
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


async def dual_writer(world: World, node: ClientNode) -> None:
    """KIP-939's recipe, with rivals: two processes share each transactional id."""
    name = f"ledger-{int(node.name.rpartition('-')[2]) // 2}"

    async def work(client: magnetar.Client, random: Random) -> None:
        instance = Instance(world, client, node, name)
        await recover(world, instance)
        while not node.stopping:
            try:
                await one_unit(world, node, instance, random)
            except ProducerFenced:
                world.provoked["o fenced"] += 1
                instance.fenced()
                raise
            await asyncio.sleep(random.uniform(0.0, 0.1))
            if random.random() < 0.1:
                return  # Another life begins.

    await with_client(world, node, work)


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


async def job(world: World, node: ClientNode) -> None:
    """A driver whose tasks share a named transaction; the losers among them must not count."""
    kept = world.jobs.setdefault(node.name, Job())

    async def work(client: magnetar.Client, random: Random) -> None:
        writers = [await Writer.make(world, node, client, "mix") for _ in range(2)]
        while not node.stopping:
            try:
                await one_sequence(world, node, client, kept, writers, random)
            except SequenceCommitted as error:
                # Another run of it, whose answer was lost.
                world.provoked["o replayed"] += 1
                kept.told[kept.sequence] = error.fingerprint
                kept.sequence += 1
            except SequenceTooOld:
                world.history.violation("o", f"{kept.sequence} of {node.name} is too old")
            await asyncio.sleep(random.uniform(0.0, 0.2))

    await with_client(world, node, work)


async def one_sequence(
    world: World,
    node: ClientNode,
    client: magnetar.Client,
    kept: Job,
    writers: list[Writer],
    random: Random,
) -> None:
    history, sequence = world.history, kept.sequence
    token = f"run-{random.getrandbits(32):08x}"

    async def join() -> magnetar.Transaction:
        return await client.begin_named_transaction(node.name, sequence, token, timeout_s=3.0)

    winner, loser = await join(), await join()
    if winner.txn_id != loser.txn_id:
        return  # The first one expired meanwhile.
    record = history.begin(winner.txn_id, node.name)
    kept.runs.setdefault(sequence, {})[winner.txn_id] = None
    sent: list[list[Sent]] = [[], []]
    for which, (writer, txn) in enumerate(zip(writers, (winner, loser), strict=True)):
        for _ in range(random.randint(1, 3)):
            message = history.send(writer.name, writer.topic, random.randrange(2), record)
            writer.producer.send_nowait(message.value, partition=message.place[1], txn=txn)
            sent[which].append(message)
    try:
        part = await winner.leave()
        await loser.leave()
    except (magnetar.CommitRefused, InvalidTxnState):
        return
    history.ask_commit(record, expected=sent[0])
    for _ in range(COMMIT_ATTEMPTS):
        asked_at = world.loop.time()
        try:
            status = await client.commit_parts([part], fingerprint=str(part.txn_id))
        except OutcomeUnknown:
            continue
        except InvalidTxnState:
            history.never_commits(record)
            return
        for message in sent[0]:
            message.confirmed = True
        history.told(record, status, asked_at=asked_at)
        world.provoked["o sequences"] += 1
        kept.sequence = sequence + 1
        return


async def terminator(world: World, node: ClientNode) -> None:
    """A transactional id that an administrator terminates, again and again.

    Meanwhile the administrator completes what databases name.
    """

    async def work(client: magnetar.Client, random: Random) -> None:
        instance = Instance(world, client, node, "victim")
        await instance.init()
        await instance.producer.complete(PreparedTxnState())
        while not node.stopping:
            if world.databases:
                await complete_by_hand(world, client, random.choice(sorted(world.databases)))
            await instance.begin()
            await instance.send(random, node.name, wait=True)
            await instance.producer.prepare()
            record = instance.record
            assert record is not None
            if random.random() < 0.5:
                asked_at = world.loop.time()
                await client.admin.transactional_ids.force_terminate("victim", abort_prepared=True)
                world.history.ask_abort(record)
                world.history.told(record, common_pb2.ABORTING, asked_at=asked_at)
                world.provoked["o terminated"] += 1
                world.history.ask_commit(record)
                try:
                    await instance.producer.commit()
                except (ProducerFenced, InvalidTxnState):
                    return
                world.history.violation("o", f"{record.txn_id} commits after its termination")
            world.history.ask_commit(record, expected=instance.accepted)
            await instance.commit()
            await asyncio.sleep(random.uniform(0.0, 0.2))

    await with_client(world, node, work)


async def terminate_victim(world: World, node: ClientNode) -> None:
    """At the end: nobody else decides about the victim's transaction."""

    async def work(client: magnetar.Client, random: Random) -> None:
        try:
            await client.admin.transactional_ids.force_terminate("victim", abort_prepared=True)
        except TransactionalIdNotFound:
            pass
        node.stopping = True

    await with_client(world, node, work)
    node.stopping = False
