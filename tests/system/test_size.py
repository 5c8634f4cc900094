"""A large transaction, and many open transactions, in bounded memory, without delays for others."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.system.conftest import Figure
from tests.system.processes import Servers
from tests.system.programs import run

import magnetar
from magnetar import Client, Producer

MEMORY_BYTES_MAX = 1 << 30
PARTITIONS = 8
MESSAGES = 1_000_000
MESSAGE_BYTES = 100
OPEN_TRANSACTIONS = 10_000
AT_ONCE = 256


async def slowest_plain_send_s(producer: Producer, count: int = 50) -> float:
    slowest = 0.0
    for number in range(count):
        began_s = time.perf_counter()
        await producer.send(b"plain", partition=number % PARTITIONS)
        slowest = max(slowest, time.perf_counter() - began_s)
    return slowest


async def end_offsets(client: Client, topic: str) -> int:
    described = await client.admin.topics.describe(topic)
    return sum(one.end_offset for one in described.partitions)


def report_memory(servers: Servers, figure: Figure) -> None:
    peak_bytes = servers.peak_memory_bytes()
    figure("peak memory of both servers", f"{peak_bytes / (1 << 20):.0f} MiB")
    assert peak_bytes < MEMORY_BYTES_MAX


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_of_a_million_messages(
    servers: Servers, figure: Figure, commits: bool
) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("large", partitions=PARTITIONS)
            producer = await client.create_producer("large")
            sent = [b"%0*d" % (MESSAGE_BYTES, number) for number in range(MESSAGES)]
            txn = await client.begin_transaction()
            began_s = time.perf_counter()
            await producer.send_many(sent, txn=txn)
            await producer.flush()
            figure("sent and durable", f"{time.perf_counter() - began_s:.2f} s")

            # They are all answered, and readable, while what is open stays open.
            slowest_s = await slowest_plain_send_s(producer)
            figure("slowest plain send of 50 beside it", f"{slowest_s * 1000:.1f} ms")
            assert await end_offsets(client, "large") == 50

            began_s = time.perf_counter()
            if commits:
                await txn.commit(wait_finished=True)
            else:
                await txn.abort()
            figure("ended", f"{time.perf_counter() - began_s:.2f} s")
            await producer.send(b"after", partition=0)
            expected = 50 + commits * MESSAGES
            assert await end_offsets(client, "large") == expected + 1
            found: list[bytes] = []
            for partition in range(PARTITIONS):
                async for columns in client.read_columns("large", partition):
                    found += [message.value for message in columns]
            assert len(found) == expected + 1
            found.sort()
            assert found[: len(sent) * commits] == sent[: len(sent) * commits]
        report_memory(servers, figure)

    run(program(), 60)


def test_ten_thousand_open_transactions(servers: Servers, figure: Figure) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("many", partitions=PARTITIONS)
            producer = await client.create_producer("many")
            turns = asyncio.Semaphore(AT_ONCE)

            async def open_one(number: int) -> magnetar.Transaction:
                async with turns:
                    txn = await client.begin_transaction()
                    await producer.send(b"%d" % number, partition=number % PARTITIONS, txn=txn)
                    return txn

            async def end_one(number: int, txn: magnetar.Transaction) -> None:
                async with turns:
                    if number % 2:
                        await txn.commit(wait_finished=True)
                    else:
                        await txn.abort()

            began_s = time.perf_counter()
            txns = await asyncio.gather(*(open_one(number) for number in range(OPEN_TRANSACTIONS)))
            figure("opened, one message each", f"{time.perf_counter() - began_s:.2f} s")
            listed = await client.admin.transactions.list(limit=2 * OPEN_TRANSACTIONS)
            # One whose coordinator moved before it answered was begun again; the first one expires.
            assert {one.txn_id for one in listed} >= {txn.txn_id for txn in txns}

            # They are all answered, and readable, while what is open stays open.
            slowest_s = await slowest_plain_send_s(producer)
            figure("slowest plain send of 50 beside them", f"{slowest_s * 1000:.1f} ms")
            assert await end_offsets(client, "many") == 50

            began_s = time.perf_counter()
            await asyncio.gather(*(end_one(number, txn) for number, txn in enumerate(txns)))
            figure("ended", f"{time.perf_counter() - began_s:.2f} s")
            values = [
                message.value
                for partition in range(PARTITIONS)
                async for message in client.read("many", partition)
            ]
            committed = sorted(b"%d" % number for number in range(1, OPEN_TRANSACTIONS, 2))
            assert sorted(value for value in values if value != b"plain") == committed
        report_memory(servers, figure)

    run(program(), 60)
