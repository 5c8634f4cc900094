"""Clients that do anything at any time, in a cluster in which everything breaks, as a seed says.

Workers of one client send and acknowledge in transactions, and end them. Many of their calls are
cancelled. At the end the cluster is well again, and what it has stored must agree with what the
calls have said.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

from tests.client.fakes import FAST, FakeCluster, connect
from tests.fake_link import FakeLink
from tests.playbook import BREAK, DROP, HOLD, LOSE
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import Client, CommitRefused, Consumer, Message, OutcomeUnknown, Producer, Transaction
from magnetar_core.errors import InvalidTxnState, LogUnavailable, MagnetarError, QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

CONFIG = dataclasses.replace(
    FAST,
    request_timeout_ms=3_000,
    operation_timeout_ms=4_000,
    send_timeout_ms=5_000,
    commit_timeout_ms=3_000,
    abort_timeout_ms=500,
    abort_drain_ms=100,
    close_timeout_ms=500,
    backoff_ms_min=5,
    backoff_ms_max=200,
)
INPUT_COUNT = 40
# Longer than all that a worker may wait for.
PATIENCE_S = 400.0
# Longer than any call, any repetition and any delay of what is given back.
QUIET_S = 100.0
# Which commands go wrong in a play.
FAULTY = (
    ("new_txn", "add_partition_to_txn"),
    ("send", "ack", "add_partition_to_txn", "add_subscription_to_txn"),
    ("end_txn", "describe_txn"),
)


class ExpiringCluster(FakeCluster):
    """Aborts a transaction when its time is up."""

    def on_new_txn(self, link: FakeLink, body: Any) -> Any:
        reply = super().on_new_txn(link, body)
        txn_id = TxnID.from_wire(reply.txn_id)
        loop = asyncio.get_running_loop()
        loop.call_later(reply.txn_timeout_ms / 1000, self.abort_open, txn_id)
        return reply

    def abort_open(self, txn_id: TxnID) -> None:
        """Abort a transaction if it is open."""
        if self.transactions[txn_id]["status"] == common_pb2.OPEN:
            self.end(txn_id, commit=False)
            self.dispatch()


class Faults:
    """What becomes of commands: in some plays of all, in others of a few kinds.

    Attributes:
        are_on: whether anything goes wrong now.
    """

    def __init__(self, random: Random) -> None:
        self.are_on = False
        self._random = random
        self._names = random.choice(((), *FAULTY))
        # Where everything goes wrong, nothing gets far.
        self._rate = random.choice((0.1, 0.3, 0.6) if self._names else (0.0, 0.02, 0.1, 0.25))

    def reaction(self, name: str, body: Any) -> object:
        """Say what becomes of a command; the playbook asks."""
        if not self.are_on or (self._names and name not in self._names):
            return None
        if self._random.random() >= self._rate:
            return None
        if name in ("send", "add_partition_to_txn") and self._random.random() < 0.05:
            return QuotaExceeded()
        return self._random.choice(self._reactions(name))

    def _reactions(self, name: str) -> list[object]:
        if name == "flow":  # Nobody answers it.
            return [LOSE, None, None]
        reactions: list[object] = [DROP, LOSE, BREAK]
        if name != "hello":
            reactions.append(LogUnavailable())
        if name not in ("subscribe", "send"):  # Late copies of these would need a whole broker.
            reactions.append(HOLD)
        return reactions


class Chaos:
    """Breaks links, lets go of what is held, and aborts transactions, every now and then."""

    def __init__(self, cluster: ExpiringCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._mean_s = random.choice((0.01, 0.1, 1.0))

    async def go_on(self) -> None:
        """Do so until the task is cancelled."""
        deeds = (
            self._cluster.net.break_links,
            self._break_a_link,
            self._silence_a_link,
            self._cluster.play.release,
            self._abort_a_transaction,
        )
        while True:
            await time_passes(self._random.expovariate(1 / self._mean_s))
            (deed,) = self._random.choices(deeds, weights=(3, 4, 2, 4, 3))
            deed()

    def end(self) -> None:
        """Make the cluster well again."""
        for link in list(self._cluster.net.links):
            if link.half_open:
                link.break_now()
        self._cluster.play.release()

    def _break_a_link(self) -> None:
        if self._cluster.net.links:
            self._random.choice(self._cluster.net.links).break_now()

    def _silence_a_link(self) -> None:
        if self._cluster.net.links:
            self._random.choice(self._cluster.net.links).half_open = True

    def _abort_a_transaction(self) -> None:
        if self._cluster.transactions:
            self._cluster.abort_open(self._random.choice(list(self._cluster.transactions)[-3:]))


class Call:
    """A call of the client in a task of its own."""

    def __init__(self, name: str, call: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.create_task(call, name=name)
        # check() looks at what it raises.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._was_cancelled = False

    def __repr__(self) -> str:
        return repr(self.task)

    def cancel(self) -> None:
        self._was_cancelled = True
        self.task.cancel()

    @property
    def succeeded(self) -> bool:
        """Whether it has ended without an error."""
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None

    @property
    def error(self) -> BaseException | None:
        """Why it has failed; None: it has not."""
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    def check(self) -> None:
        """It has ended in a way that its caller can understand."""
        assert self.task.done(), f"a call never ends: {self}"
        if self.task.cancelled():
            assert self._was_cancelled, f"nobody has cancelled it: {self}"
        elif (error := self.task.exception()) is not None:
            assert isinstance(error, MagnetarError), f"not an error for users: {self}"


class Calls:
    """The calls of a play, of which some are cancelled at a random moment."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cancel_rate = random.choice((0.1, 0.3, 0.6))
        self._all: list[Call] = []

    def begin(self, name: str, call: Coroutine[Any, Any, Any]) -> Call:
        """Begin a call, and do not wait for it."""
        begun = Call(name, call)
        self._all.append(begun)
        return begun

    async def end(self, call: Call) -> Call:
        """Wait for a call; perhaps it is cancelled."""
        if self._random.random() < self._cancel_rate:
            await turns(self._random.choice((0, 1, 2, 3, 5, 8)))
            if self._random.random() < 0.5:
                await time_passes(self._random.choice((0.001, 0.01, 0.2, 1.2)))
            call.cancel()
        await asyncio.wait([call.task])
        return call

    async def make(self, name: str, call: Coroutine[Any, Any, Any]) -> Call:
        """Begin a call and wait for it."""
        return await self.end(self.begin(name, call))

    @property
    def unfinished(self) -> str:
        """The names of the calls that have not ended."""
        return ", ".join(call.task.get_name() for call in self._all if not call.task.done())

    def check(self) -> None:
        """All calls have ended, and well."""
        for call in self._all:
            call.check()


class Work:
    """What a worker did in a transaction.

    Attributes:
        sends: the calls by message.
        acks: offsets of inputs, with the calls that acknowledged them.
        is_committed: what the calls said of the outcome; None: nobody knows.
    """

    def __init__(self, txn: Transaction) -> None:
        self.txn = txn
        self.sends: dict[bytes, Call] = {}
        self.acks: list[tuple[int, Call]] = []
        self.is_committed: bool | None = None

    def check(self, stored: Counter[bytes]) -> None:
        """All of it is stored, or nothing, as it was told."""
        sent = {value for value, call in self.sends.items() if call.succeeded}
        kept = {value for value in sent if stored[value]}
        if self.is_committed is None:
            assert kept in (set(), sent), f"{self.txn} is torn: {kept} of {sent}"
        elif self.is_committed:
            assert kept == sent, f"{self.txn} was committed, without {sent - kept}"
        else:
            lost = {value for value in self.sends if stored[value]}
            assert not lost, f"{self.txn} was aborted, and {lost} are stored"


class Ledger:
    """What the calls of all workers have said."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.plain_sends: dict[bytes, Call] = {}
        self._count = 0

    def new_message(self) -> bytes:
        """Return a value that no other message has."""
        self._count += 1
        return b"message %d" % self._count

    def check_messages(self, stored: Counter[bytes]) -> None:
        """What is stored agrees with what the calls said."""
        assert all(count == 1 for count in stored.values()), f"more than once: {stored}"
        for value, call in self.plain_sends.items():
            error = call.error
            if error is None:
                assert stored[value], f"{value!r} is lost"
            elif not isinstance(error, asyncio.CancelledError | OutcomeUnknown):
                assert not stored[value], f"{value!r} was refused, and is stored: {error!r}"
        for work in self.works:
            work.check(stored)

    def check_inputs(self, acknowledged: set[int], came_again: list[int]) -> None:
        """Each input has counted in one transaction, or comes again for another."""
        assert len(set(came_again)) == len(came_again), f"some came twice: {came_again}"
        everything = set(range(INPUT_COUNT))
        assert acknowledged.isdisjoint(came_again), f"again: {acknowledged & set(came_again)}"
        lost = everything - acknowledged - set(came_again)
        assert not lost, f"they never come again: {lost}"
        tried = {
            offset for one in self.works if one.is_committed is not False for offset, _ in one.acks
        }
        assert acknowledged <= tried, f"acknowledged by nobody: {acknowledged - tried}"
        for work in self.works:
            if work.is_committed:
                done = {offset for offset, call in work.acks if call.succeeded}
                assert done <= acknowledged, f"{work.txn} was committed without its acks"


class Worker:
    """Uses a client as applications do, with more mistakes."""

    def __init__(
        self,
        client: Client,
        producers: list[Producer],
        consumer: Consumer,
        calls: Calls,
        ledger: Ledger,
        random: Random,
    ) -> None:
        self._client = client
        self._producers = producers
        self._consumer = consumer
        self._calls = calls
        self._ledger = ledger
        self._random = random

    async def go_on(self) -> None:
        """Send some messages, most of them in transactions."""
        for _ in range(self._random.randrange(2, 7)):
            if self._random.random() < 0.15:
                await self._send_plain()
            else:
                await self._transact()

    async def _send_plain(self) -> None:
        value = self._ledger.new_message()
        call = self._calls.begin("send", self._random.choice(self._producers).send(value))
        self._ledger.plain_sends[value] = call
        await self._calls.end(call)

    async def _transact(self) -> None:
        timeout_s = self._random.choice((0.5, 3.0, 60.0))
        is_lazy = self._random.random() < 0.4
        begin = await self._calls.make("begin", self._begin(timeout_s, is_lazy))
        if not begin.succeeded:
            return
        work = Work(begin.task.result())
        self._ledger.works.append(work)
        deeds = (self._send, self._acknowledge, self._fail)
        for _ in range(self._random.randrange(5)):
            (deed,) = self._random.choices(deeds, weights=(75, 35, 1))
            await deed(work)
            await self._think()
        await self._end(work)

    async def _think(self) -> None:
        if self._random.random() < 0.3:
            await time_passes(self._random.choice((0.001, 0.01, 0.1, 1.0)))

    async def _begin(self, timeout_s: float, is_lazy: bool) -> Transaction:
        return await self._client.begin_transaction(timeout_s, lazy=is_lazy)

    async def _send(self, work: Work) -> None:
        value = self._ledger.new_message()
        producer = self._random.choice(self._producers)
        how = self._random.choice((producer.send, producer.enqueue))
        call = self._calls.begin("send in a transaction", how(value, txn=work.txn))
        work.sends[value] = call
        if self._random.random() < 0.2:
            await turns()
        else:
            await self._calls.end(call)

    async def _acknowledge(self, work: Work) -> None:
        receive = await self._calls.make("receive", self._consumer.receive_batch(1, timeout_s=0.3))
        for message in receive.task.result() if receive.succeeded else ():
            has_begun = asyncio.Event()
            call = self._calls.begin("ack", self._ack(message, work.txn, has_begun))
            await self._calls.end(call)
            if has_begun.is_set():
                work.acks.append((message.offset, call))
            else:
                self._give_back(message)

    async def _ack(self, message: Message, txn: Transaction, has_begun: asyncio.Event) -> None:
        txn.require_open()
        has_begun.set()
        if self._random.random() < 0.5:
            self._consumer.ack_nowait(message, txn=txn)
        else:
            await self._consumer.ack(message, txn=txn)

    def _give_back(self, message: Message) -> None:
        try:
            self._consumer.nack(message)
        except MagnetarError:
            pass  # The client is closed.

    async def _fail(self, work: Work) -> None:
        work.txn.doom(InvalidTxnState("the test says so"))

    async def _end(self, work: Work) -> None:
        """Try to commit or to abort, until the outcome is known."""
        for _ in range(6):
            if self._random.random() < 0.1:
                self._calls.begin(
                    "another end", self._random.choice((work.txn.commit, work.txn.abort))()
                )
            is_commit = self._random.random() < 0.7
            end = work.txn.commit if is_commit else work.txn.abort
            call = await self._calls.make("commit" if is_commit else "abort", end())
            if call.succeeded:
                work.is_committed = is_commit
                return
            if isinstance(call.error, CommitRefused | InvalidTxnState):
                # It has ended in the other way.
                work.is_committed = not is_commit
                return
            await time_passes(self._random.choice((0.0, 0.1, 2.0)))


class Play:
    """A cluster, a client and its workers."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._cluster = ExpiringCluster()
        if self._random.random() < 0.4:
            self._cluster.coordinators["coordinator:2"] = 8
        self._outputs = self._cluster.topic("out", self._random.choice((1, 2, 3)))
        self._cluster.topic("in")
        self._cluster.publish("in", [b"input %d" % n for n in range(INPUT_COUNT)])
        self._faults = Faults(self._random)
        self._cluster.play.improvise = self._faults.reaction
        self._chaos = Chaos(self._cluster, self._random)
        self._calls = Calls(self._random)
        self._ledger = Ledger()

    async def run(self) -> None:
        """Play, and check what came of it."""
        client = await connect(self._cluster, CONFIG, self._seed)
        producers = [
            await client.create_producer("out", linger_ms=self._random.choice((0, 1, 5)))
            for _ in range(2)
        ]
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        is_closed_early = self._random.random() < 0.3
        await self._work(client, producers, consumer, is_closed_early)
        await self._calm_down()
        self._calls.check()
        if not is_closed_early:
            await self._check_inputs(consumer)
        self._check_budget(client)
        await self._close(client)
        stored = Counter(value for partition in self._outputs for value in partition.messages)
        self._ledger.check_messages(stored)

    async def _work(
        self, client: Client, producers: list[Producer], consumer: Consumer, is_closed_early: bool
    ) -> None:
        self._faults.are_on = True
        chaos = asyncio.create_task(self._chaos.go_on())
        workers = [
            Worker(client, producers, consumer, self._calls, self._ledger, self._random)
            for _ in range(self._random.choice((1, 2, 3)))
        ]
        working = [asyncio.create_task(worker.go_on()) for worker in workers]
        if is_closed_early:
            await time_passes(self._random.choice((0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)))
            await client.close()
        _, still_working = await asyncio.wait(working, timeout=PATIENCE_S)
        assert not still_working, f"these calls never end: {self._calls.unfinished}"
        for task in working:
            task.result()
        chaos.cancel()
        self._faults.are_on = False

    async def _calm_down(self) -> None:
        self._chaos.end()
        # All transactions end meanwhile, at the latest when their time is up.
        await time_passes(QUIET_S)
        self._cluster.dispatch()

    async def _check_inputs(self, consumer: Consumer) -> None:
        cursor = self._cluster.cursors["in", "s", 0]
        assert not cursor.pending, "acks of transactions that have ended wait"
        came_again: list[int] = []
        while messages := await consumer.receive_batch(INPUT_COUNT, timeout_s=20):
            came_again += [message.offset for message in messages]
        self._ledger.check_inputs(cursor.acked, came_again)

    def _check_budget(self, client: Client) -> None:
        budget = client._producers.budget
        assert (budget.pending_bytes, budget.pending_messages) == (0, 0)

    async def _close(self, client: Client) -> None:
        async with asyncio.timeout(QUIET_S):
            await client.close()
        await time_passes(1)
        left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        assert not left, left
        assert not self._cluster.net.links
