"""A group at several real brokers, in virtual time: shares, kills, and exactly once over all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from random import Random

import pytest
from tests.simulation.nodes import ClientNode
from tests.simulation.short.draft import Draft
from tests.simulation.world import World
from tests.waiting import until

import magnetar
from magnetar import Message, Output, TopicPartition

pytestmark = pytest.mark.sim

GROUP, INPUT, OUTPUT = "crew", "in", "out"
PARTITIONS = 6
BROKERS = 3


class Scene(World):
    """Three brokers with two partitions of each topic, and what a test does with them."""

    def __init__(self, seed: int, scenario: Callable[[Scene, magnetar.Client], Awaitable[None]]):
        draft = Draft(Random(seed))
        for topic in (INPUT, OUTPUT):
            draft.topic(topic, PARTITIONS)
        draft.broker_count = BROKERS
        super().__init__(draft.finish(str(seed), "groups at brokers", ()))
        self._scenario = scenario

    async def _main(self) -> None:
        await self.set_up()
        await self.run_program("scenario", self._run_scenario)
        self.check_servers()

    async def _run_scenario(self, node: ClientNode) -> None:
        async with asyncio.timeout(600):
            async with await self.connect(node) as client:
                await self._scenario(self, client)

    async def connect(self, node: ClientNode) -> magnetar.Client:
        return await magnetar.connect(
            self.broker_names,
            transport=node.transport(),
            clock=node.clock,
            random=self.environment.random(f"{node.name}/{node.life}"),
            config=self.client_config,
        )

    def places_at(self, broker: int) -> set[int]:
        """The input's partitions that a broker keeps."""
        topic_id = self.topic_ids[INPUT]
        shards = {number: self.keeper_of(topic_id, number) for number in range(PARTITIONS)}
        return {number for number, one in shards.items() if one is self.brokers[broker]}

    def kill(self, broker: int) -> None:
        """It loses power, and stays down."""
        self.brokers[broker].restarts = False
        self.brokers[broker].crash(power_loss=True)

    async def restart(self, broker: int) -> None:
        self.brokers[broker].restarts = True
        self.brokers[broker].start()
        await self.brokers[broker].ready.wait()

    async def hears_of(self, topic: str, broker: int) -> None:
        await until(lambda: self.brokers[broker].server.topics.lookup(topic) is not None)

    def worker(self, name: str, instance_id: str = "") -> Worker:
        worker = Worker(self, instance_id)
        worker.node = ClientNode(self.environment, name, worker.live)
        worker.node.start()
        return worker


class Worker:
    """A process that transforms the input into the output until it is told to stop."""

    node: ClientNode
    consumer: magnetar.GroupConsumer

    def __init__(self, scene: Scene, instance_id: str) -> None:
        self._scene = scene
        self._instance_id = instance_id
        self._stop = asyncio.Event()
        self.joined = asyncio.Event()

    async def live(self, node: ClientNode) -> None:
        # Closed by hand: a process that is killed closes nothing.
        client = await self._scene.connect(node)
        self.consumer = await join(client, instance_id=self._instance_id)
        self.joined.set()
        producer = client.transactional_producer()
        await producer.init_transactions(self.consumer)
        await magnetar.process(
            self.consumer,
            lambda message: [Output(OUTPUT, message.value, key=message.value)],
            producer,
            batch_messages_max=8,
            stop=self._stop,
            handle_signals=False,
        )
        await client.close()

    async def stop(self) -> None:
        self._stop.set()
        assert self.node.main is not None
        await asyncio.wait([self.node.main])


async def join(client: magnetar.Client, **options: str) -> magnetar.GroupConsumer:
    return await client.consumer_group(
        GROUP,
        INPUT,
        session_timeout_s=1.0,
        initial_position="earliest",
        receiver_queue_messages=4,
        **options,  # type: ignore[arg-type]
    )


def all_places() -> set[TopicPartition]:
    return {TopicPartition(INPUT, number) for number in range(PARTITIONS)}


def are_shared(*consumers: magnetar.GroupConsumer) -> bool:
    """Whether all partitions are with these members, evenly over all brokers."""
    held = [place for consumer in consumers for place in consumer.assignment]
    sizes = [len(consumer.assignment) for consumer in consumers]
    return len(held) == PARTITIONS and set(held) == all_places() and max(sizes) - min(sizes) < 2


async def send(client: magnetar.Client, numbers: range) -> None:
    producer = await client.create_producer(INPUT)
    for number in numbers:
        await producer.send(b"%d" % number, partition=number % PARTITIONS)
    await producer.flush()
    await producer.close()


async def receive(consumer: magnetar.GroupConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.receive_batch(count - len(found), timeout_s=1)
    return found


async def outputs(client: magnetar.Client) -> Counter[bytes]:
    found: list[Message] = []
    for number in range(PARTITIONS):
        async with aclosing(client.read(OUTPUT, number)) as messages:
            found += [message async for message in messages]
    return Counter(one.value for one in found)


async def all_done(client: magnetar.Client, count: int) -> bool:
    described = await client.admin.groups.describe(GROUP)
    return described.summary.lag == 0 and (await outputs(client)).total() >= count


async def wait_until_done(client: magnetar.Client, count: int) -> None:
    await until(lambda: all_done(client, count), 120)


def expected(numbers: range) -> Counter[bytes]:
    return Counter(b"%d" % number for number in numbers)


def test_members_share_the_partitions_of_all_brokers() -> None:
    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        one = await join(client)
        await until(lambda: are_shared(one))
        two = await join(client)
        three = await join(client, instance_id="third")
        # Who receives gives up what is asked back.
        receiving = [asyncio.create_task(each.receive()) for each in (one, two, three)]
        await until(lambda: are_shared(one, two, three))
        described = await client.admin.groups.describe(GROUP)
        assert len(described.members) == described.summary.members == 3
        assert {each.partitions for each in described.members} == {2}
        assert [each.partition for each in described.partitions] == list(range(PARTITIONS))
        (summary,) = await client.admin.groups.list()
        assert summary == described.summary
        # A static member's next self has the same place at every broker.
        before = set(three.assignment)
        again = await join(client, instance_id="third")
        await until(lambda: set(again.assignment) == before)
        assert are_shared(one, two, again)
        await two.close()
        await until(lambda: are_shared(one, again))
        with pytest.raises(magnetar.ResourceInUse):
            await client.admin.groups.delete(GROUP)
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
        for each in (one, three, again):
            await each.close(leave=True)
        await client.admin.groups.delete(GROUP)
        assert await client.admin.groups.list() == []

    Scene(1, scenario).run()


@pytest.mark.parametrize("victim", range(BROKERS))
def test_a_broker_that_is_down_delays_its_own_partitions_only(victim: int) -> None:
    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        one = await join(client)
        await until(lambda: are_shared(one))
        others = [n for n in range(PARTITIONS) if n not in scene.places_at(victim)]
        scene.kill(victim)
        producer = await client.create_producer(INPUT)
        for number in others:
            await producer.send(b"%d" % number, partition=number)
        await producer.flush()
        messages = await receive(one, len(others))
        await one.ack_many(messages)
        await one.flush_acks()
        # Whoever comes now is a member at the others, and gets a share of theirs: more than half
        # where they count what the first one has at the broker that is down.
        two = await join(client)
        receiving = asyncio.create_task(one.receive())
        await until(lambda: len(two.assignment) >= len(others) // 2)
        assert {place.partition for place in two.assignment} <= set(others)
        with pytest.raises(magnetar.LogUnavailable, match=scene.brokers[victim].name):
            await client.admin.groups.describe(GROUP)
        await scene.restart(victim)
        await until(lambda: are_shared(one, two))
        described = await client.admin.groups.describe(GROUP)
        assert described.summary.lag == 0
        assert len(described.members) == 2
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)

    Scene(victim, scenario).run()


@pytest.mark.parametrize("victim", range(BROKERS))
@pytest.mark.parametrize("seed", range(2))
def test_whatever_broker_is_killed_each_input_is_processed_once(victim: int, seed: int) -> None:
    """Transactions cover partitions of all brokers, inputs and outputs."""

    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        workers = [scene.worker("w-0"), scene.worker("w-1", "static")]
        for worker in workers:
            await worker.joined.wait()
        await send(client, range(90))
        await asyncio.sleep(scene.random.uniform(0.0, 0.1))
        scene.kill(victim)
        workers.append(scene.worker("w-2"))
        await asyncio.sleep(scene.random.uniform(0.5, 4.0))
        await scene.restart(victim)
        await wait_until_done(client, 90)
        assert await outputs(client) == expected(range(90))
        await until(lambda: are_shared(*(worker.consumer for worker in workers)))
        for worker in workers:
            await worker.stop()

    Scene(100 * victim + seed, scenario).run()


def test_a_member_that_is_killed_is_replaced_at_all_brokers() -> None:
    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        workers = [scene.worker(f"w-{number}") for number in range(3)]
        for worker in workers:
            await worker.joined.wait()
        await send(client, range(120))
        await asyncio.sleep(0.05)
        workers[0].node.crash(restart_after=None)
        await wait_until_done(client, 120)
        assert await outputs(client) == expected(range(120))
        await until(lambda: are_shared(workers[1].consumer, workers[2].consumer))
        for worker in workers[1:]:
            await worker.stop()

    Scene(7, scenario).run()


def test_who_is_cut_off_from_one_broker_keeps_the_partitions_of_the_others() -> None:
    """It is expelled at one, and not at the others, where nothing moves."""

    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        worker, other = scene.worker("w-0"), scene.worker("w-1")
        await worker.joined.wait()
        await other.joined.wait()
        await until(lambda: are_shared(worker.consumer, other.consumer))
        cut = scene.places_at(1)
        kept = {one for one in worker.consumer.assignment if one.partition not in cut}
        scene.network.partition("w-0", scene.brokers[1].name, 8.0)
        await until(lambda: cut <= {one.partition for one in other.consumer.assignment})
        await send(client, range(60))
        await wait_until_done(client, 60)
        assert await outputs(client) == expected(range(60))
        assert kept <= set(worker.consumer.assignment)
        await until(lambda: are_shared(worker.consumer, other.consumer))
        await send(client, range(60, 120))
        await wait_until_done(client, 120)
        assert await outputs(client) == expected(range(120))
        await worker.stop()
        await other.stop()

    Scene(8, scenario).run()


def test_a_topic_that_one_broker_hears_of_later_is_read_everywhere_else_at_once() -> None:
    async def scenario(scene: Scene, client: magnetar.Client) -> None:
        first, late = scene.brokers[0].name, scene.brokers[1].name
        scene.network.partition(late, first, 20.0)
        for link in [one for one in scene.network.links(late) if one.server_node == first]:
            scene.network.break_link(link)
        began_s = scene.loop.time()
        topic_id = await client.admin.topics.create("new", partitions=PARTITIONS)
        consumer = await client.consumer_group(GROUP, "new", initial_position="earliest")
        assert scene.loop.time() - began_s < 10
        known = [n for n in range(PARTITIONS) if scene.keeper_of(topic_id, n).name != late]
        assert sorted(one.partition for one in consumer.assignment) == known
        producer = await client.create_producer("new")
        for number in known:
            await producer.send(b"", partition=number)
        await consumer.ack_many(await receive(consumer, len(known)))
        # Sent as soon as its broker has heard of it, and before the consumer asks there again.
        rest = [n for n in range(PARTITIONS) if n not in known]
        await scene.hears_of("new", 1)
        for number in rest:
            await producer.send(b"", partition=number)
        assert {one.partition for one in await receive(consumer, len(rest))} == set(rest)

    Scene(9, scenario).run()
