"""One client with every kind of user lives through owners that die and sleep, and sees no error.

Source: docs/design/0009-owners.md, What it promises, 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.etcd_server import EtcdServer
from tests.object_server import ObjectServer
from tests.system.conftest import Figure
from tests.system.members import Members, Watcher, shards_of, started
from tests.system.programs import run, values
from tests.waiting import pace, until

import magnetar
from magnetar import Client
from magnetar_cluster.directory.view import BROKER, COORDINATOR, View
from magnetar_core.errors import InvalidTxnState

PARTITIONS = 6
PATIENCE_S = 90.0
# Owners wait for leases of seconds, and all the time users would take what processors there are.
PAUSE_S = 0.03
RECEIVING = ("consume", "group")
MEMBERS = {"a": BROKER, "b": BROKER, "x": COORDINATOR, "y": COORDINATOR}


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    settings = {"MAGNETAR_SETTLING_MS": "500"}
    yield from started(tmp_path, etcd_server, object_server, settings, **MEMBERS)


class Users:
    """Each kind of user, at work; any error of theirs ends the test.

    Attributes:
        done: how often each of them has come round.
        sent: what the plain producer has sent to each partition, and was acknowledged.
        consumed: what the plain consumer has received.
        committed: what the transactional producer has sent to all partitions.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.done: dict[str, int] = {}
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.consumed: list[bytes] = []
        self.committed: list[bytes] = []
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        producer = await self._client.create_producer("plain", linger_ms=0)
        consumer = await self._client.subscribe("plain", "s", initial_position="earliest")
        group = await self._client.consumer_group("g", "plain", initial_position="earliest")
        billing = self._client.transactional_producer("billing")
        await billing.init()

        async def send(partition: int, number: int) -> None:
            value = b"%d-%06d" % (partition, number)
            await producer.send(value, partition=partition)
            self.sent[partition].append(value)

        async def consume(number: int) -> None:
            messages = await consumer.receive_batch(1_000, timeout_s=1.0)
            self.consumed += [message.value for message in messages]
            await consumer.ack_many(messages)

        async def consume_together(number: int) -> None:
            message = await group.receive()
            try:
                async with self._client.transaction() as txn:
                    await group.ack(message, txn=txn)
            except InvalidTxnState:
                pass  # A crash takes what has just begun (docs/design/0010): it comes again.

        async def bill(number: int) -> None:
            value = b"%06d" % number
            await billing.begin()
            for partition in range(PARTITIONS):
                await billing.send("bills", value, partition=partition)
            await billing.commit()
            self.committed.append(value)

        async def load(number: int) -> None:
            txn = await self._client.begin_named_transaction("load", number, "run")
            await producer.send(b"load", partition=0, txn=txn)
            await txn.commit()

        async def administrate(number: int) -> None:
            await self._client.admin.topics.describe("plain")
            await self._client.admin.transactions.list()

        for partition in range(PARTITIONS):
            self._spawn(f"send-{partition}", partial(send, partition))
        for name, work in (
            ("consume", consume),
            ("group", consume_together),
            ("bill", bill),
            ("load", load),
            ("administrate", administrate),
        ):
            self._spawn(name, work)

    def _spawn(self, name: str, work: Callable[[int], Awaitable[None]]) -> None:
        self.done[name] = 0

        async def keep_on() -> None:
            # Those who receive go on until they have all that was sent.
            while not self._stopping or name in RECEIVING:
                await work(self.done[name])
                self.done[name] += 1
                await pace(PAUSE_S)

        self._tasks.append(asyncio.get_running_loop().create_task(keep_on(), name=name))

    async def more(self, count: int = 3) -> dict[str, float]:
        """Wait until each has come round so often; return how many seconds that took each."""
        loop = asyncio.get_running_loop()
        began_s, before, took_s = loop.time(), dict(self.done), dict[str, float]()

        def all_did() -> bool:
            for one in self._tasks:
                if one.done():
                    one.result()
            for name, number in self.done.items():
                if number >= before[name] + count:
                    took_s.setdefault(name, loop.time() - began_s)
            return len(took_s) == len(self.done)

        await until(all_did, PATIENCE_S)
        return took_s

    async def stop(self) -> None:
        self._stopping = True
        consuming = [one for one in self._tasks if one.get_name() in RECEIVING]
        await asyncio.gather(*(one for one in self._tasks if one not in consuming))
        await until(lambda: {one for some in self.sent for one in some} <= set(self.consumed))
        for one in consuming:
            one.cancel()
        await asyncio.gather(*consuming, return_exceptions=True)

    async def check(self) -> None:
        for partition, sent in enumerate(self.sent):
            found = await values(self._client, "plain", partition)
            assert [one for one in found if one != b"load"] == sent, "in order, and once"
            loads = 0 if partition else self.done["load"]
            assert found.count(b"load") == loads, "each number of the sequence counts once"
            assert await values(self._client, "bills", partition) == self.committed


@asynccontextmanager
async def at_work(members: Members) -> AsyncIterator[tuple[Users, Watcher]]:
    """One client and its users, while things happen; checked at the end."""
    watcher = Watcher(members.directory())
    await watcher.until(has_everything)
    async with await magnetar.connect(members.addresses()) as client:
        for topic in ("plain", "bills"):
            await client.admin.topics.create(topic, partitions=PARTITIONS)
        users = Users(client)
        await users.begin()
        await users.more()
        yield users, watcher
        await users.more()
        await users.stop()
        await users.check()
    await watcher.close()


def has_everything(view: View) -> bool:
    return all(shards_of(view, name, kind) for name, kind in MEMBERS.items())


@pytest.mark.parametrize("how", ["kill", pytest.param("freeze", marks=pytest.mark.soak)])
def test_users_go_on_where_others_have_the_shards(
    members: Members, figure: Figure, how: str
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        async with at_work(members) as (users, watcher):
            for name in ("a", "x"):
                began_s = loop.time()
                (members.kill if how == "kill" else members.freeze)(name)
                going_on = asyncio.create_task(users.more(2))
                await watcher.owned(without=name)
                figure(f"{how} {name} to other owners", f"{loop.time() - began_s:.1f} s")
                took_s = await going_on
                last = max(took_s, key=lambda user: took_s[user])
                figure(f"{how} {name} to all users", f"{took_s[last]:.1f} s, {last} last")

    run(program(), timeout_s=240)
