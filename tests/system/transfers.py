"""Transfers between accounts: each is a transaction of two messages, in two partitions.

All messages of a topic together have the sum 0, whatever is cut off, as long as no transfer is
torn. Each transfer also acknowledges an order, so that cursors and pending acks take part.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from random import Random

from tests.fork_server import ForkedProcess
from tests.system.programs import values

import magnetar
from magnetar import Client, Consumer, Producer

ACCOUNTS = "accounts"
ORDERS = "orders"
PARTITIONS = 8
TELLERS = 4


async def create_topics(address: str) -> None:
    async with await magnetar.connect(address) as client:
        await client.admin.topics.create(ACCOUNTS, partitions=PARTITIONS)
        await client.admin.topics.create(ORDERS, partitions=2)


class Transfers:
    """Tellers who transfer until they are stopped, or their servers die.

    Args:
        name: begins the names of all transfers, so that those of several runs differ.
    """

    def __init__(self, address: str, name: str, seed: int = 7) -> None:
        self._address = address
        self._name = name
        self._random = Random(seed)
        self._numbers = itertools.count()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._progress = asyncio.Condition()
        # Names of transfers whose commit was answered, in the order of the answers.
        self.committed: list[str] = []

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def more(self, count: int) -> None:
        """Wait for so many more transfers."""
        enough = len(self.committed) + count
        async with self._progress:
            await self._progress.wait_for(
                lambda: len(self.committed) >= enough or (self._task and self._task.done())
            )

    async def stop(self) -> None:
        """Let the tellers finish; they met no error."""
        self._stopping = True
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        async with await magnetar.connect(self._address) as client, asyncio.TaskGroup() as group:
            producer = await client.create_producer(ACCOUNTS)
            orders = await client.create_producer(ORDERS)
            consumer = await client.subscribe(
                ORDERS, "tellers", type="shared", initial_position="earliest"
            )
            for _ in range(TELLERS):
                group.create_task(self._tell(client, producer, orders, consumer))

    async def _tell(
        self, client: Client, producer: Producer, orders: Producer, consumer: Consumer
    ) -> None:
        while not self._stopping:
            name = f"{self._name}-{next(self._numbers)}"
            await orders.send(name.encode())
            order = await consumer.receive(30)
            assert order is not None
            debtor, creditor = self._random.sample(range(PARTITIONS), 2)
            amount = self._random.randint(1, 1_000)
            txn = await client.begin_transaction()
            for partition, change in ((debtor, -amount), (creditor, amount)):
                padding = "." * self._random.choice((0, 0, 0, 9_000))
                value = f"{name} {change} {padding}".encode()
                await producer.send(value, partition=partition, txn=txn)
            await consumer.ack(order, txn=txn)
            if self._random.random() < 0.1:
                await txn.abort()
                continue
            await txn.commit()
            async with self._progress:
                self.committed.append(name)
                self._progress.notify_all()


async def settled(client: Client) -> bool:
    """Whether no transaction is live."""
    return not await client.admin.transactions.list()


async def check_accounts(client: Client) -> Counter[str]:
    """Check that no transfer is torn or doubled; return the names of all transfers."""
    names: Counter[str] = Counter()
    total = 0
    for partition in range(PARTITIONS):
        for value in await values(client, ACCOUNTS, partition):
            name, change, *_ = value.decode().split(" ")
            names[name] += 1
            total += int(change)
    torn = {name: count for name, count in names.items() if count != 2}
    assert not torn, torn
    assert total == 0
    return names


class TransfersProcess:
    """The same in a process of its own, which is killed with its servers."""

    def __init__(self, address: str, name: str) -> None:
        self._process = ForkedProcess(address, name, module="tests.system.transfers")

    def more(self, count: int) -> None:
        """Wait for so many more transfers."""
        for _ in range(count):
            assert self._process.stdout.readline(), "the transfers have ended"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


async def _transfer_and_tell(address: str, name: str) -> None:
    transfers = Transfers(address, name)
    await transfers.start()
    told = 0
    while True:
        await transfers.more(1)
        for one in transfers.committed[told:]:
            print(one, flush=True)
        told = len(transfers.committed)


if __name__ == "__main__":
    asyncio.run(_transfer_and_tell(sys.argv[1], sys.argv[2]))
