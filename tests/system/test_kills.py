"""Servers and clients die at the worst moments; nothing is lost, nothing counts twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass

import pytest
from tests.system.conftest import Figure
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run, values
from tests.waiting import until

import magnetar
from magnetar import (
    Client,
    Consumer,
    Message,
    Producer,
    Transaction,
    TransactionAction,
    TransactionStatus,
)

CONVERGED_S = 5.0
PARTITIONS = 2

# What is killed after the decisions (the broker is down before), and what is started then; the
# time runs from the last start.
SCENARIOS = {
    "broker": ((), (BROKER,)),
    "coordinator": ((COORDINATOR,), (BROKER, COORDINATOR)),
    "both": ((COORDINATOR,), ()),
}


@dataclass
class Scene:
    """Three transactions that have sent to every partition, and acknowledged an input each."""

    client: Client
    producer: Producer
    consumer: Consumer
    open: Transaction
    committing: Transaction
    aborting: Transaction


async def set_up(servers: Servers) -> Scene:
    client = await magnetar.connect(servers.address)
    await client.admin.topics.create("outputs", partitions=PARTITIONS)
    await client.admin.topics.create("inputs")
    inputs = await client.create_producer("inputs")
    consumer = await client.subscribe(
        "inputs", "worker", type="shared", initial_position="earliest"
    )
    producer = await client.create_producer("outputs")
    transactions = []
    for name in (b"open", b"committing", b"aborting"):
        await inputs.send(name)
        message = await consumer.receive(5)
        assert message.value == name
        txn = await client.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send(name + b"-1", partition=partition, txn=txn)
        await consumer.ack(message, txn=txn)
        transactions.append(txn)
    return Scene(client, producer, consumer, *transactions)


async def only_the_open_one_is_left(client: Client, open_txn: Transaction) -> bool:
    """Everywhere: at the coordinator, in the partitions, and in the subscription."""
    if [one.txn_id for one in await client.admin.transactions.list()] != [open_txn.txn_id]:
        return False
    for topic in ("inputs", "outputs"):
        for partition in (await client.admin.topics.describe(topic)).partitions:
            found = [partition.open_txns, *(one.pending_txns for one in partition.subscriptions)]
            if any(set(txns) - {open_txn.txn_id} for txns in found):
                return False
    return True


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_transactions_converge_after_a_kill(
    servers: Servers, scenario: str, figure: Figure
) -> None:
    also_killed, started = SCENARIOS[scenario]

    async def program() -> None:
        scene = await set_up(servers)
        servers.kill(BROKER)
        await scene.committing.commit()
        await scene.aborting.abort()
        assert scene.committing.status is TransactionStatus.COMMITTING
        assert scene.aborting.status is TransactionStatus.ABORTING
        if also_killed:
            servers.kill(*also_killed)
        # One after the other where they are named, together where not.
        for kind in started or [None]:
            await asyncio.to_thread(servers.start, *([kind] if kind else []))

        again = await check_converged(servers, scene, figure, CONVERGED_S)
        await scene.consumer.ack(again)
        assert await scene.consumer.receive_batch(timeout_s=0.3) == []
        (inputs,) = (await scene.client.admin.topics.describe("inputs")).partitions
        assert inputs.subscriptions[0].backlog == 0
        await scene.client.close()

    run(program())


async def check_converged(
    servers: Servers, scene: Scene, figure: Figure, within_s: float
) -> Message:
    """What was decided has ended, and the open one goes on; return the input that comes again."""
    async with await magnetar.connect(servers.address) as witness:
        took_s = await until(lambda: only_the_open_one_is_left(witness, scene.open), within_s)
        figure("converged after ready", f"{took_s:.2f} s")
        for partition in range(PARTITIONS):
            assert await values(witness, "outputs", partition) == [b"committing-1"]
        await ask_again(witness, scene)
    # With what it had, with more, and to its commit.
    for partition in range(PARTITIONS):
        await scene.producer.send(b"open-2", partition=partition, txn=scene.open)
    await scene.open.commit(wait_finished=True)
    for partition in range(PARTITIONS):
        assert await values(scene.client, "outputs", partition) == [
            *(b"committing-1", b"open-1", b"open-2")
        ]
    # Of the inputs, only the aborted one's comes again.
    again = await scene.consumer.receive(10)
    assert again.value == b"aborting"
    return again


async def ask_again(client: Client, scene: Scene) -> None:
    """EndTxn repeated gives the same answer; the opposite is refused."""
    for txn, action, opposite, status in (
        (
            scene.committing,
            TransactionAction.COMMIT,
            TransactionAction.ABORT,
            TransactionStatus.COMMITTED,
        ),
        (
            scene.aborting,
            TransactionAction.ABORT,
            TransactionAction.COMMIT,
            TransactionStatus.ABORTED,
        ),
    ):
        for _ in range(2):
            assert await client.admin.transactions.end(txn.txn_id, action) is status
        with pytest.raises(magnetar.InvalidTxnState):
            await client.admin.transactions.end(txn.txn_id, opposite)
        assert await client.admin.transactions.end(txn.txn_id, action) is status


DOOMED_CLIENT = """
import asyncio, sys, magnetar

async def program():
    client = await magnetar.connect(sys.argv[1])
    consumer = await client.subscribe("inputs", "worker", initial_position="earliest")
    producer = await client.create_producer("outputs")
    txn = await client.begin_transaction(timeout_s=1.0)
    for _ in range(10):
        message = await consumer.receive(5)
        await producer.send(message.value, txn=txn)
        await consumer.ack(message, txn=txn)
    print(txn.txn_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(program())
"""


def test_a_killed_clients_transaction_expires(servers: Servers, figure: Figure) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            for topic in ("inputs", "outputs"):
                await client.admin.topics.create(topic)
            inputs = await client.create_producer("inputs")
            expected = [b"%d" % number for number in range(10)]
            await inputs.send_many(expected)
            await inputs.flush()
            txn_id = await asyncio.to_thread(kill_a_client_in_a_transaction, servers.address)
            (listed,) = await client.admin.transactions.list()
            assert str(listed.txn_id) == txn_id
            assert listed.status is TransactionStatus.OPEN

            async def has_ended() -> bool:
                return not await client.admin.transactions.list()

            took_s = await until(has_ended, 5.0)
            figure("expired, of a timeout of 1 s", f"{took_s:.2f} s after the kill")
            assert await values(client, "outputs") == []
            consumer = await client.subscribe("inputs", "worker")
            received: list[bytes] = []
            while len(received) < len(expected):
                message = await consumer.receive(5)
                received.append(message.value)
                await consumer.ack(message)
            assert received == expected
            assert await consumer.receive_batch(timeout_s=0.3) == []

    run(program())


def kill_a_client_in_a_transaction(address: str) -> str:
    """Returns its TxnID."""
    with subprocess.Popen(
        [sys.executable, "-c", DOOMED_CLIENT, address], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        txn_id = process.stdout.readline().strip()
        process.kill()
    assert txn_id
    return txn_id


KILLS = 3
PRODUCERS = 3
# Messages of each producer.
BETWEEN_KILLS = 400


def test_confirmed_messages_survive_kills_under_load(servers: Servers, figure: Figure) -> None:
    confirmed: dict[bytes, list[bytes]] = {}
    stopping = asyncio.Event()

    async def send_plainly(client: Client, name: bytes) -> None:
        producer = await client.create_producer("load")
        count = 0
        while not stopping.is_set():
            some = [b"%s:%d" % (name, count + step) for step in range(20)]
            await asyncio.gather(*(producer.send(one, partition=0) for one in some))
            confirmed[name] += some
            count += len(some)

    async def send_in_transactions(client: Client, name: bytes) -> None:
        producer = await client.create_producer("load")
        count = 0
        while not stopping.is_set():
            some = [b"%s:%d" % (name, count + step) for step in range(20)]
            async with client.transaction() as txn:
                await producer.send_many(some, partition=0, txn=txn)
            confirmed[name] += some
            count += len(some)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("load")
            async with asyncio.TaskGroup() as tasks:
                for number in range(PRODUCERS):
                    for kind, send in (
                        (b"plain", send_plainly),
                        (b"transactional", send_in_transactions),
                    ):
                        name = b"%s-%d" % (kind, number)
                        confirmed[name] = []
                        tasks.create_task(send(client, name))
                for _ in range(KILLS):
                    await all_advance(BETWEEN_KILLS)
                    servers.kill(BROKER)
                    await asyncio.to_thread(servers.start, BROKER)
                    await all_advance(1)
                stopping.set()

            async def is_idle() -> bool:
                return not await client.admin.transactions.list()

            await until(is_idle)
            stored: dict[bytes, list[bytes]] = {name: [] for name in confirmed}
            for value in await values(client, "load"):
                stored[value.partition(b":")[0]].append(value)
            assert stored == confirmed
            total = sum(map(len, confirmed.values()))
            figure("confirmed", f"{total:,} messages over {KILLS} kills")

    async def all_advance(count: int) -> None:
        """Until every producer has heard of so many messages more that they are durable."""
        wanted = {name: len(some) + count for name, some in confirmed.items()}
        await until(lambda: all(len(confirmed[name]) >= wanted[name] for name in wanted))

    run(program(), 60)
