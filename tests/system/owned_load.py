"""Load on a cluster whose shards change their owner, and what has to be there in the end."""

from __future__ import annotations

import asyncio
import itertools
from typing import Protocol

from tests.system.programs import values
from tests.waiting import pace, until

import magnetar
from magnetar import Client, ClientConfig, ErrorKind, MagnetarError, Producer

TOPIC = "t"
PARTITIONS = 6
PATIENCE_S = 90.0
# Servers wait for leases of seconds, and all the time this would take what processors there are.
PAUSE_S = 0.03


class Addressed(Protocol):
    """Servers that a sender talks to."""

    def addresses(self) -> list[str]:
        """Of all that run."""
        ...

    def address(self, name: str) -> str:
        """Of one of them."""
        ...


async def create_topic(members: Addressed) -> None:
    async with await magnetar.connect(members.addresses()) as client:
        await client.admin.topics.create(TOPIC, partitions=PARTITIONS)


class Sender:
    """Commits transactions of a message in each partition, and knows what was answered.

    It has a single client, which meets no error, whatever happens to the servers.

    Args:
        starts_over: begin a transaction anew that is lost. A client may hear of a TxnID before its
            record is durable, and the coordinator may end in between.
    """

    def __init__(self, members: Addressed, patience_s: float, *, starts_over: bool = False) -> None:
        self._members = members
        self._patience_s = patience_s
        self._starts_over = starts_over
        self.committed: list[bytes] = []
        self.sent: list[bytes] = []
        # How long each took, from its beginning to the answer to its commit.
        self.took_s: list[float] = []
        self._stopping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @classmethod
    async def begin(
        cls,
        members: Addressed,
        count: int,
        patience_s: float = 30.0,
        *,
        starts_over: bool = False,
    ) -> Sender:
        """Create the topic, and wait for so many transactions."""
        await create_topic(members)
        sender = cls(members, patience_s, starts_over=starts_over)
        await sender.more(count)
        return sender

    async def more(self, count: int) -> None:
        """Wait for so many more."""
        enough = len(self.committed) + count
        await until(lambda: len(self.committed) >= enough or self._task.done(), PATIENCE_S)
        if self._task.done():
            await self._task

    async def finish(self, name: str) -> None:
        """Let the last transaction end, and check through a member what is there.

        What was answered is there, once, in order, in all partitions, and so is nothing else.
        """
        self._stopping = True
        await self._task
        async with await magnetar.connect(self._members.address(name)) as client:

            async def none_left() -> bool:
                return not await client.admin.transactions.list()

            await until(none_left, PATIENCE_S)
            found = [await values(client, TOPIC, partition) for partition in range(PARTITIONS)]
        assert all(one == found[0] for one in found), "whole transactions"
        assert found[0] == sorted(set(found[0])), "in order, and once"
        assert set(self.committed) <= set(found[0]) <= set(self.sent)

    async def _run(self) -> None:
        addresses = ",".join(self._members.addresses())
        config = ClientConfig(operation_timeout_ms=self._patience_s * 1_000)
        async with await magnetar.connect(addresses, config=config) as client:
            producer = await client.create_producer(TOPIC)
            loop = asyncio.get_running_loop()
            for number in itertools.count():
                value = b"%06d" % number
                began_s = loop.time()
                try:
                    await self._transact(client, producer, value)
                except MagnetarError as error:
                    if not (self._starts_over and error.kind is ErrorKind.START_OVER):
                        raise
                    # It is aborted, and nobody may see it.
                    self.sent = [one for one in self.sent if one != value]
                    continue
                self.committed.append(value)
                self.took_s.append(loop.time() - began_s)
                if self._stopping:
                    return
                await pace(PAUSE_S)

    async def _transact(self, client: Client, producer: Producer, value: bytes) -> None:
        txn = await client.begin_transaction(timeout_s=self._patience_s)
        for partition in range(PARTITIONS):
            await producer.send(value, partition=partition, txn=txn)
        self.sent.append(value)
        await txn.commit()
