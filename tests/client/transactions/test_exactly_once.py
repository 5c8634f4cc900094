"""Consume, transform and produce in transactions, while everything breaks: each input counts once.

The cluster is a fake, the faults come from a seed; tests/simulation does it to real servers.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import BREAK, LOSE
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import Client, MagnetarError, OutcomeUnknown
from magnetar_core.errors import LogUnavailable

SEEDS = [int(one) for one in os.environ.get("CLIENT_SEEDS", "").split(",") if one] or range(6)
INPUTS = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_every_input_counts_once(seed: int) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        random = Random(seed)
        cluster.topic("in", 2)
        outs = cluster.topic("out", 2)
        for n in range(INPUTS // 2):
            for partition in range(2):
                cluster.publish("in", [b"%d" % (2 * n + partition)], partition)
        calm = False

        def script(name: str, body: Any) -> object:
            if calm or random.random() > 0.08:
                return None
            if name in ("send", "ack", "nack", "end_txn") and random.random() < 0.3:
                return LogUnavailable()
            return random.choice([LOSE, BREAK])

        consumer = await client.subscribe(
            "in", "s", initial_position="earliest", receiver_queue_messages=8, nack_delay_ms=0
        )
        producer = await client.create_producer("out", linger_ms=0, batch_messages_max=2)
        cluster.play.improvise = script

        async def one_transaction() -> bool:
            messages = await consumer.receive_batch(random.randint(1, 6), timeout_s=0.005)
            txn = await client.begin_transaction()
            try:
                for message in messages:
                    await producer.enqueue(message.value, message.value, txn=txn)
                    if random.random() < 0.3:
                        await time_passes(0.001)
                    consumer.ack_nowait(message, txn=txn)
                if random.random() < 0.15:
                    cluster.end(txn.txn_id, commit=False)
                    cluster.dispatch()
                if random.random() < 0.15:
                    await txn.abort()
                else:
                    await txn.commit()
            except OutcomeUnknown:
                await txn.commit()
            except MagnetarError:
                await txn.abort()
                # What the transaction never got to acknowledge is still ours to give back.
                consumer.nack_many(messages)
            return bool(messages)

        idle_count = 0
        for turn in range(400):
            calm = turn > 60
            idle_count = 0 if await one_transaction() else idle_count + 1
            if idle_count > 3 and calm:
                break
        values = [int(value) for partition in outs for value in partition.messages]
        assert sorted(values) == list(range(INPUTS))
        for partition in range(2):
            assert len(cluster.cursors["in", "s", partition].acked) == INPUTS // 2

    run(test)


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_sends_arrive_once_and_in_order(seed: int) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        random = Random(seed)
        partitions = cluster.topic("out", 2)
        producer = await client.create_producer("out", linger_ms=0, batch_messages_max=3)

        def script(name: str, body: Any) -> object:
            if random.random() > 0.1:
                return None
            return random.choice([LOSE, BREAK, LogUnavailable()])

        cluster.play.improvise = script
        for n in range(300):
            await producer.enqueue(b"%d" % n, partition=n % 2)
            if random.random() < 0.2:
                await turns()
        await producer.flush()
        cluster.play.forget()
        for number, partition in enumerate(partitions):
            assert partition.messages == [b"%d" % n for n in range(number, 300, 2)]

    run(test)
