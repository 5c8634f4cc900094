"""Clients that do anything at any time, in a cluster in which everything breaks, as a seed says.

Workers of one client send and acknowledge in transactions, and end them. Many of their calls are
cancelled. At the end the cluster is well again, and what it has stored must agree with what the
calls have said.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from random import Random

from tests.client.fakes import FAST, connect
from tests.client.transactions.disorder import Chaos, ExpiringCluster, Faults
from tests.client.transactions.ledger import INPUT_COUNT, Calls, Ledger, Work
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import Client, CommitRefused, Consumer, Message, Producer, Transaction
from magnetar_core.errors import InvalidTxnState, MagnetarError

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
# Longer than all that a worker may wait for.
PATIENCE_S = 400.0
# Longer than any call, any repetition and any delay of what is given back.
QUIET_S = 100.0


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
        txn.work.require_open()
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
        work.txn.work.doom(InvalidTxnState("the test says so"))

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
        budget = client._opened.producers.budget
        assert (budget.pending_bytes, budget.pending_messages) == (0, 0)

    async def _close(self, client: Client) -> None:
        async with asyncio.timeout(QUIET_S):
            await client.close()
        await time_passes(1)
        left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        assert not left, left
        assert not self._cluster.net.links
