"""The client against real brokers whose shards go from server to server, in virtual time.

A shard's rows stay in its store; each ownership is another Broker on it, at another address.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from tests.broker.cluster import Cluster, run
from tests.client.fakes import FAST
from tests.simulation.links import Part, SimulatedLink
from tests.virtual_loop import VirtualClock, VirtualLoop
from tests.virtual_time import time_passes

import magnetar
from magnetar import Client
from magnetar.testing.lives import Incarnation
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.shard_address import ShardAddress, ShardPlace, server_of
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2

COUNT = 60
SHARDS = 3
# A server that sleeps is given up for its successor, or much too late.
PATIENT = dataclasses.replace(
    FAST,
    operation_timeout_ms=60_000,
    send_timeout_ms=60_000,
    request_timeout_ms=240_000,
    backoff_ms_max=200,
)


class MovingShards(Cluster):
    """Brokers whose addresses are those of owners: the servers s-0, s-1, ... have shards in turn.

    It is an AddressBook for them, and the way of clients to them.
    """

    def __init__(self, loop: VirtualLoop, count: int, **settings: Any) -> None:
        # 0: nobody has the shard.
        self.epochs = [number + 1 for number in range(count)]
        # Whose servers say nothing any more, not even that they are gone.
        self._silent: set[str] = set()
        super().__init__(loop, count, addresses=self, **settings)
        self.network.dialer = self

    def address(self, number: int) -> str:
        epoch = self.epochs[number]
        return str(ShardAddress(f"s-{epoch % 7}" if epoch else "", ShardPlace(number, epoch)))

    def find(self, member: MemberAddress) -> MemberAddress:
        kind, _, number = member.name.partition("-")
        if kind != "b":
            return member
        return dataclasses.replace(member, address=self.address(int(number)))

    def knows(self, address: str) -> bool:
        return address.startswith("s-")

    async def dial(
        self,
        client: Incarnation,
        part: Part | None,
        address: str,
        service: str,
        on_frame: Callable[[service_pb2.Frame], None],
        on_closed: Callable[[], None],
    ) -> SimulatedLink:
        for number in range(SHARDS):
            owner = self.address(number)
            if address not in (owner, server_of(owner)):
                continue

            def frame(one: service_pb2.Frame, owner: str = owner) -> None:
                if owner not in self._silent:
                    on_frame(one)

            def closed(owner: str = owner) -> None:
                if owner not in self._silent:
                    on_closed()

            return await self.network.connect(client, f"b-{number}", service, frame, closed, part)
        raise LinkClosed(f"{address} is not there")

    async def move(self, number: int, *, sleeps: bool, gap_s: float = 0.0) -> None:
        """Another server gets the shard, after a gap; the one before is gone, or sleeps."""
        if sleeps:
            self._silent.add(self.address(number))
        epoch = max(self.epochs)
        self.epochs[number] = 0
        self.crash(number, power_loss=not sleeps)
        await time_passes(gap_s)
        self.epochs[number] = epoch + 1
        await self.start(number)


def run_moving(test: Callable[[MovingShards, Client], Awaitable[None]]) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert isinstance(cluster, MovingShards)
        async with await magnetar.connect(
            "s-1",
            transport=cluster.network.transport(cluster.loop.incarnate("sdk")),
            clock=VirtualClock(),
            random=Random(7),
            config=PATIENT,
        ) as client:
            await client.admin.topics.create("t", partitions=SHARDS)
            await test(cluster, client)

    run(scenario, SHARDS, make=MovingShards)


async def read(client: Client, partition: int) -> list[bytes]:
    return [one.value async for one in client.read("t", partition)]


async def keep_moving(cluster: MovingShards, *, sleep: bool) -> None:
    """Each second another shard goes to another server; now and then nobody has it for a while."""
    random = Random("moves")
    while True:
        await cluster.move(
            random.randrange(SHARDS), sleeps=sleep, gap_s=random.choice((0.0, 0.0, 0.3, 2.0))
        )
        await time_passes(random.uniform(0.0, 1.5))


@pytest.mark.parametrize("sleep", [False, True])
def test_what_is_sent_over_many_moves_is_there_once_and_in_order(sleep: bool) -> None:
    """A producer with batches in flight, a plain consumer, a group, readers and an administrator,
    all at once.
    """

    async def test(cluster: MovingShards, client: Client) -> None:
        wanted = [b"%d" % number for number in range(COUNT)]
        producer = await client.create_producer("t", linger_ms=0)
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        group = await client.consumer_group("g", "t", initial_position="earliest")
        moving = asyncio.create_task(keep_moving(cluster, sleep=sleep))

        async def produce(partition: int) -> None:
            under_way: list[asyncio.Task[object]] = []
            for value in wanted:
                under_way.append(asyncio.create_task(producer.send(value, partition=partition)))
                # So that several batches are in flight, and moves find them there.
                await time_passes(0.25)
            await asyncio.gather(*under_way)

        async def consume(receiver: Any) -> None:
            seen: dict[int, list[bytes]] = {number: [] for number in range(SHARDS)}
            while any(wanted[-1] not in one for one in seen.values()):
                message = await receiver.receive()
                values = seen[message.message_id.partition]
                # What was not acknowledged in time comes again, and nothing else.
                if message.value not in values:
                    values.append(message.value)
                await receiver.ack(message)
            assert all(one == wanted for one in seen.values())

        async def administrate() -> None:
            while True:
                assert len((await client.admin.topics.describe("t")).partitions) == SHARDS
                assert [one.group for one in await client.admin.groups.list()] == ["g"]
                await time_passes(0.5)

        administrating = asyncio.create_task(administrate())
        work = [produce(number) for number in range(SHARDS)]
        await asyncio.gather(*work, consume(consumer), consume(group))
        for number in range(SHARDS):
            assert await read(client, number) == wanted
        assert not moving.done()
        for task in (moving, administrating):
            task.cancel()
        await asyncio.gather(moving, administrating, return_exceptions=True)
        assert max(cluster.epochs) > 10, "there were moves enough"

    run_moving(test)
