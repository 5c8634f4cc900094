"""Topics come and go at several brokers that crash, lose power, and lose each other.

Every topic is created with a message in each partition. Nothing may be lost but by a deletion.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.broker.cluster import Cluster, run
from tests.broker.test_several_brokers import delete, read, send
from tests.virtual_time import time_passes

from magnetar_core.errors import Gone, LogUnavailable, TopicExists, TopicNotFound
from magnetar_core.wire import topic_pb2 as topic_wire

BROKERS = 3
STEPS = 30


class Chaos:
    """What a cluster goes through, and what must be there afterwards."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = Random(f"directory/{seed}")
        # Ids of topics with a message in each partition, by name.
        self.filled: dict[str, int] = {}
        self.count = 0

    async def go(self) -> None:
        for _ in range(STEPS):
            await self.random.choice(
                [self.make, self.make, self.remove, self.crash, self.cut, self.duplicate, self.wait]
            )()
            self.cluster.check()
        self.cluster.network.heal()
        for number, node in enumerate(self.cluster.nodes):
            if not node.alive:
                await self.cluster.start(number)
        await self.cluster.until(lambda: all(self.cluster.has_met(one) for one in range(BROKERS)))
        # Whatever was under way has ended at the first broker by now.
        await time_passes(10)
        await self.judge()

    async def judge(self) -> None:
        cluster = self.cluster
        first = {one.name: one.topic_id for one in cluster.broker(0).topics.all()}
        for number in range(BROKERS):
            topics = cluster.broker(number).topics
            assert {one.name: one.topic_id for one in topics.all()} == first
            assert topics.next_serial == cluster.broker(0).topics.next_serial
            for topic, topic_id in self.filled.items():
                assert first[topic] == topic_id
                name = cluster.partition_at(number, topic, topic_id)
                assert await read(cluster, number, name) == 1

    def somewhere(self) -> int:
        return self.random.randrange(BROKERS)

    async def patiently(self, body: object) -> object:
        """Ask brokers until one answers, for a while: then nobody knows what came of it."""
        began = self.cluster.loop.time()
        while self.cluster.loop.time() - began < 8:
            number = self.somewhere()
            if self.cluster.nodes[number].alive:
                try:
                    client = await self.cluster.client(number)
                    return await asyncio.wait_for(client.ask(body), 2)
                except (LogUnavailable, OSError, TimeoutError):
                    pass
            await time_passes(0.1)
        raise LogUnavailable("nobody answered")

    async def make(self) -> None:
        self.count += 1
        name = f"t-{self.random.randrange(4)}"
        body = topic_wire.CommandCreateTopic(topic=name, partitions=BROKERS, call_token=self.count)
        try:
            made = await self.patiently(body)
        except (TopicExists, LogUnavailable):
            return
        assert isinstance(made, topic_wire.CommandCreateTopicResponse)
        assert self.filled.get(name) in (None, made.topic_id)
        for number in range(BROKERS):
            if not self.cluster.nodes[number].alive:
                await self.cluster.start(number)
            place = self.cluster.partition_at(number, name, made.topic_id)
            await self.cluster.ask(number, send(place, b"0"))
        self.filled[name] = made.topic_id

    async def remove(self) -> None:
        if not self.filled:
            return
        self.count += 1
        name = self.random.choice(sorted(self.filled))
        del self.filled[name]
        try:
            await self.patiently(delete(name, token=self.count))
        except (TopicNotFound, Gone):
            raise AssertionError(f"{name} was there") from None
        except LogUnavailable:
            # Deleted, or not, or later: it is not used again.
            self.cluster.network.heal()
            await time_passes(30)

    async def crash(self) -> None:
        number = self.somewhere()
        if self.cluster.nodes[number].alive:
            self.cluster.crash(number, power_loss=self.random.random() < 0.7)
            await time_passes(self.random.choice([0.0, 0.01, 3.0]))
        await self.cluster.start(number)

    async def cut(self) -> None:
        first, second = self.random.sample(range(BROKERS), 2)
        seconds = self.random.choice([0.1, 1.0, 4.0])
        self.cluster.network.partition(f"b-{first}", f"b-{second}", seconds)
        for link in self.cluster.network.links(f"b-{first}"):
            if self.random.random() < 0.3:
                self.cluster.network.break_link(link)

    async def duplicate(self) -> None:
        for _ in range(3):
            self.cluster.network.duplicate()

    async def wait(self) -> None:
        await time_passes(self.random.choice([0.001, 0.1, 2.0]))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_but_by_a_deletion(seed: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Chaos(cluster, seed).go()

    run(scenario, count=BROKERS)
