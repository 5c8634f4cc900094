"""Plays a script with an asyncio client: in memory and in virtual time, or at real servers."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterator
from random import Random
from typing import Any

from tests import virtual_time
from tests.client.fakes import FAST, Partition, connect
from tests.client.fuzzing.arguments import PARTITIONS, TOPICS
from tests.client.fuzzing.calls import OTHER_TOPICS, Call, Calls, Objects
from tests.client.fuzzing.ledger import Content, Ledger, Record, Wrong
from tests.client.fuzzing.script import SCOPE, Script, Step
from tests.client.transactions.disorder import ExpiringCluster, Faults
from tests.fake_link import FakeLink
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import Client, Message, Transaction
from magnetar.message import AssembledBatch, ReceivedBatch
from magnetar.testing.lives import SimulationFailure
from magnetar_core.batch import part_of
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.wire import broker_pb2

CONFIG = dataclasses.replace(
    FAST,
    request_timeout_ms=3_000,
    operation_timeout_ms=4_000,
    send_timeout_ms=5_000,
    commit_timeout_ms=3_000,
    pending_messages_max=20,
    pending_bytes_max=20_000,
    backoff_ms_max=200,
)
# Longer than any call may take.
PATIENCE_S = 400.0
READ_MAX = 20
READ_S = 0.5
# Behind that a failure says which objects and numbers it is about.
KIND_LENGTH = 30


class FuzzedPartition(Partition):
    """Takes parts of messages, too."""

    def append(self, batch: bytes, txn_id: Any = None) -> int:
        if not part_of(batch):
            return super().append(batch, txn_id)
        first = len(self.messages)
        self.messages.append(batch)
        self.batches.append((first, 1, batch, txn_id))
        return first


class FuzzedCluster(ExpiringCluster):
    """Refuses what it does not know, as a server does that has no such thing."""

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        made: list[Partition] = [FuzzedPartition() for _ in range(partitions)]
        self.topics[name] = (len(self.topics) + 1, made)
        return made

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        if not hasattr(self, f"on_{name}"):
            raise InvalidArgument(f"{name} is not played here")
        try:
            return super().handle(link, name, body)
        except (KeyError, IndexError) as error:
            raise InvalidArgument(f"there is no such thing: {error}") from None

    def stored(self) -> Iterator[Content]:
        """All messages, as consumers get them."""
        for topic in TOPICS:
            for number, partition in enumerate(self.topics[topic][1]):
                parts: list[ReceivedBatch] = []
                for first, count, data, _ in partition.batches:
                    wire = broker_pb2.DeliveredBatch(entry_id=first, num_messages=count, batch=data)
                    batch = ReceivedBatch(topic, number, 1, wire)
                    if part_of(data):
                        parts.append(batch)
                        if part_of(data).name == "LAST":
                            yield content(Message(AssembledBatch(parts, 1 << 20), 0))
                            parts = []
                        continue
                    for place in range(count):
                        yield content(Message(batch, place))


def content(message: Message) -> Content:
    return message.value, message.key, dict(message.properties), message.event_time_ms


class Play:
    """A client, and callers that share it.

    Args:
        in_real_time: whether it is at real servers.
    """

    def __init__(self, script: Script, *, in_real_time: bool = False) -> None:
        self.ledger = Ledger()
        self._script = script
        self._in_real_time = in_real_time
        # Whether they end without messages and without the end of the client.
        self._tasks: dict[asyncio.Task[Any], bool] = {}

    async def begin(self, client: Client) -> None:
        """Make what callers need first."""
        objects = Objects(client)
        self._calls = Calls(self._script, objects, self.ledger, in_real_time=self._in_real_time)
        for topic in TOPICS:
            objects.add(await client.create_producer(topic, batch_messages_max=5, linger_ms=1))

    async def run(self) -> None:
        """Play all steps."""
        callers = [
            asyncio.create_task(self._caller(number)) for number in range(self._script.callers)
        ]
        done, still = await asyncio.wait(callers, timeout=PATIENCE_S)
        if still:
            self.ledger.check_ends()
        for one in done:
            one.result()

    async def settle(self, client: Client) -> bool:
        """Bring everything to an end; return whether the client was closed by its callers."""
        if bounded := [one for one, ends in self._tasks.items() if ends]:
            await asyncio.wait(bounded, timeout=PATIENCE_S)
        is_closed = client._runtime.is_closing
        if not is_closed:
            for one in self._calls.used("Producer"):
                await self._recorded("flush", one, one.flush())
            for one in self._calls.used("Transaction"):
                for _ in range(3):
                    record = await self._recorded("commit", one, one.commit(), txn=one)
                    if record.error is None or not isinstance(record.error, MagnetarError):
                        break
                    if not record.error.kind.may_pass:
                        break
        await client.close()
        if self._tasks:
            # What waits for messages hears that none will come.
            await asyncio.wait(self._tasks, timeout=PATIENCE_S)
        return is_closed

    async def _recorded(self, name: str, owner: Any, call: Any, **facts: Any) -> Record:
        record = self.ledger.begin(None, name, owner, **facts)
        await self._finish(record, call)
        return record

    async def _caller(self, number: int) -> None:
        for step in self._script.steps:
            if step.caller == number:
                await self._step(step)
                if step.pause_s and not self._in_real_time:
                    await time_passes(step.pause_s)

    async def _step(self, step: Step) -> None:
        if step.method == SCOPE:
            await self._spawn(step, self._block(step), None)
            return
        call = self._calls.of(step)
        if call is None:
            return
        try:
            made = call.make()
        except BaseException as error:
            self._end(call, error)
            return
        if inspect.isasyncgen(made):
            made = _read(made)
        if not inspect.isawaitable(made):
            self._calls.objects.add(made)
            call.spoil()
            self._end(call, None)
            return
        await self._spawn(step, self._finish(call.record, made), call)

    def _end(self, call: Call, error: BaseException | None) -> None:
        self.ledger.end(call.record, error)

    async def _spawn(self, step: Step, work: Any, call: Call | None) -> None:
        task = asyncio.create_task(work, name=str(step))
        ends = call is None or not call.waits_for_messages
        self._tasks[task] = ends
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        await turns()
        if call is not None:
            call.spoil()
        if step.fate == "cancel":
            await turns(step.turns)
            if call is not None:
                call.record.was_cancelled = True
            task.cancel()
        if step.fate == "cancel" or (step.fate == "await" and ends):
            await asyncio.wait([task], timeout=PATIENCE_S)

    async def _finish(self, record: Record, call: Any) -> None:
        try:
            found = await call
        except BaseException as error:
            self.ledger.end(record, error)
            if isinstance(error, asyncio.CancelledError) and not record.was_cancelled:
                raise
        else:
            self.ledger.end(record, None)
            self._calls.objects.add(found)

    async def _block(self, step: Step) -> None:
        """A transaction in an `async with`, in which errors of sends are swallowed."""
        client = self._calls.objects.at("Client", 0)
        random = Random(f"{self._script.seed}/{step.chance}")
        record = self.ledger.begin(step, SCOPE, client, may_time_out=False)
        record.was_cancelled = step.fate == "cancel"
        try:
            async with client.transaction(5, lazy=random.random() < 0.5) as txn:
                record.txn = txn
                for _ in range(random.choice((0, 1, 2, 4))):
                    await self._send_in(random, txn, record.was_cancelled)
        except BaseException as error:
            self.ledger.end(record, error)
        else:
            self.ledger.end(record, None)

    async def _send_in(self, random: Random, txn: Transaction, may_be_cancelled: bool) -> None:
        producer, given, sent = self._calls.a_send(random, txn)
        method = random.choice((producer.send, producer.enqueue, producer.send_nowait))
        record = self.ledger.begin(None, method.__name__, producer, txn=txn, contents=[sent])
        record.was_cancelled = may_be_cancelled
        try:
            made = method(**given)
            if inspect.isawaitable(made):
                await made
        except asyncio.CancelledError as error:
            self.ledger.end(record, error)
            raise
        except BaseException as error:
            self.ledger.end(record, error)
        else:
            if "partition" in given and given["partition"] not in (0, 1, None):
                record.contents = [None]
            self.ledger.end(record, None)


async def _read(pieces: Any) -> list[Any]:
    """Some of what an iterator yields. One that follows a topic has no end."""
    found = []
    try:
        async with asyncio.timeout(READ_S):
            async for piece in pieces:
                found.append(piece)
                if len(found) == READ_MAX:
                    break
    except TimeoutError:
        pass
    finally:
        await pieces.aclose()
    return found


async def _play(script: Script, ledgers: list[Ledger]) -> None:
    cluster = FuzzedCluster()
    cluster.heartbeat_interval_ms = 500
    for topic in TOPICS:
        cluster.topic(topic, PARTITIONS)
    for topic in OTHER_TOPICS:
        cluster.topic(topic)
    client = await connect(cluster, CONFIG, script.seed)
    faults = Faults(Random(script.seed), script.fault_rate)
    cluster.play.improvise = faults.reaction
    playing = Play(script)
    ledgers.append(playing.ledger)
    await playing.begin(client)
    faults.are_on = bool(script.fault_rate)
    await playing.run()
    faults.are_on = False
    cluster.play.release()
    is_closed = await playing.settle(client)
    playing.ledger.check_ends()
    playing.ledger.check_messages(cluster.stored(), is_closed=is_closed)
    budget = client._opened.producers.budget
    if (budget.pending_bytes, budget.pending_messages) != (0, 0):
        raise Wrong(f"kept in the budget: {budget.pending_messages} messages")
    await time_passes(1)
    left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    if left:
        raise Wrong(f"still running: {left}")


def play(script: Script) -> Ledger:
    """Play a script in memory.

    Raises:
        Wrong: a call did not keep what it says.
        SimulationFailure: a callback or a task of the client failed, or something waits for ever.
    """
    ledgers: list[Ledger] = []
    virtual_time.run(_play(script, ledgers))
    return ledgers[0]


def failure_of(script: Script) -> str | None:
    """What goes wrong in a script, beginning with its kind; None: nothing does."""
    try:
        play(script)
    except (Wrong, SimulationFailure, AssertionError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrunk(script: Script) -> Script:
    """Leave out steps of a script that fails, as long as it fails in the same way."""
    kind = _kind(failure_of(script))
    numbers = [step.number for step in script.steps]
    size = len(numbers) // 2
    while size:
        place = 0
        while place < len(numbers):
            fewer = numbers[:place] + numbers[place + size :]
            if fewer and _kind(failure_of(script.only(fewer))) == kind:
                numbers = fewer
            else:
                place += size
        size //= 2
    return script.only(numbers)


def _kind(failure: str | None) -> str | None:
    return None if failure is None else failure[:KIND_LENGTH]
