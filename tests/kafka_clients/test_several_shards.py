"""A process with several shards loses one under produce, fetch and waiting fetches."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.broker.harness import Alone, ManualClock
from tests.configs import broker_config
from tests.kafka_clients.harness import (
    KafkaClient,
    KafkaWorld,
    batch,
    fetch,
    fetched,
    produce,
    produced,
    run,
)
from tests.waiting import until

from magnetar_broker.broker import Broker
from magnetar_broker.keys import FAMILIES
from magnetar_broker.topic_directory.guards import FollowerGuard
from magnetar_broker.topics.topic_directory import Taken
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.shards import Shard
from magnetar_kafka.wire import apis
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

PAIR = (batch(b"c"), batch(b"d"))
BROKERS = tuple(MemberAddress(name=f"broker-{n}", address=f"127.0.0.1:{n + 1}") for n in (0, 1))


class Second:
    """The broker of shard 1, beside that of shard 0 which the world has."""

    def __init__(self, world: KafkaWorld) -> None:
        self.world = world
        self.leased = True
        self.release = asyncio.Semaphore(0)
        self.disk = MemoryDisk(sleep=self._stalled)

    async def _stalled(self, _: float) -> None:
        await self.release.acquire()

    async def open(self) -> None:
        config = broker_config(name="broker-1", brokers=BROKERS, free_space_floor_bytes=1 << 20)
        self.broker = Broker(
            config,
            MemoryStore(self.disk, FAMILIES),
            Alone(),
            ManualClock(),
            Random(8),
            self.world.fatal.append,
        )
        await self.broker.start()
        guard = self.broker.topic_directory.guard
        assert isinstance(guard, FollowerGuard)
        guard.accepted()
        created = [topic.record for topic in self.world.broker.topics.all()]
        self.broker.topics.take(
            Taken(created=created), next_serial=len(created) + 1, may_have_rows=False
        )
        self.shard: Shard = self.world.listener.add(self.broker.local_access, lambda: self.leased)


def test_a_broker_whose_store_is_not_accepted_answers_nothing_about_partitions() -> None:
    async def scenario(world: KafkaWorld) -> None:
        second, client, lost = await prepared(world)
        guard = second.broker.topic_directory.guard
        assert isinstance(guard, FollowerGuard)
        guard.refused("it is another store")
        codes = [code for code, _ in produced(await client.ask(apis.PRODUCE, of_both(*PAIR)))]
        assert codes == expected(lost, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        guard.accepted()
        codes = [code for code, _ in produced(await client.ask(apis.PRODUCE, of_both(*PAIR)))]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE]
        second.broker.abandon()

    run(scenario, brokers=BROKERS)


def of_both(*rows: Any) -> dict[str, Any]:
    return {
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [
            {
                "name": "both",
                "partition_data": [
                    {"index": number, "records": (data,)} for number, data in enumerate(rows)
                ],
            }
        ],
    }


def of_all(offset: int, **more: Any) -> dict[str, Any]:
    parts = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for number in (0, 1)
    ]
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "topics": [{"topic": "both", "partitions": parts}],
        **more,
    }


async def prepared(world: KafkaWorld) -> tuple[Second, KafkaClient, int]:
    """Return the second broker, a client, and the partition of "both" that shard 1 has."""
    await world.client.ask(topic_pb2.CommandCreateTopic(topic="both", partitions=2))
    second = Second(world)
    await second.open()
    topic_id = world.broker.topics.get("both").topic_id
    lost = next(number for number in (0, 1) if shard_of(topic_id, number) == 1)
    client = await world.connect()
    answer = await client.ask(apis.PRODUCE, of_both(batch(b"a"), batch(b"b")))
    assert produced(answer) == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 0)]
    (topic,) = (await client.ask(apis.METADATA, {"topics": [{"name": "both"}]}))["topics"]
    assert [one["leader_id"] for one in topic["partitions"]] == [1, 1]
    return second, client, lost


def expected(lost: int, code: ErrorCode) -> list[ErrorCode]:
    return [code if number == lost else ErrorCode.NONE for number in (0, 1)]


def test_a_batch_that_a_lost_shard_had_applied_is_not_confirmed() -> None:
    async def scenario(world: KafkaWorld) -> None:
        second, client, lost = await prepared(world)
        second.disk.sync_seconds = 1.0
        client.tell(apis.PRODUCE, of_both(batch(b"c"), batch(b"d")))
        client.tell(apis.API_VERSIONS, {})
        partition = second.broker.topics.get("both").hosted[lost]
        await until(lambda: partition.log.end_offset == 2)
        # Its store is never written again: the answer does not wait for it.
        world.listener.remove(second.shard)
        found = produced(await client.answer())
        codes = [code for code, _ in found]
        assert codes == expected(lost, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert [offset for _, offset in found] == [-1 if n == lost else 1 for n in (0, 1)]
        assert (await client.answer())["api_keys"]
        second.broker.abandon()

    run(scenario, brokers=BROKERS)


def test_an_answer_that_leaves_after_the_lease_is_withdrawn_for_that_shard_alone() -> None:
    async def scenario(world: KafkaWorld) -> None:
        second, client, lost = await prepared(world)
        second.disk.sync_seconds = 1.0
        client.tell(apis.PRODUCE, of_both(batch(b"c"), batch(b"d")))
        partition = second.broker.topics.get("both").hosted[lost]
        await until(lambda: partition.log.end_offset == 2)
        second.leased = False
        second.release.release()
        codes = [code for code, _ in produced(await client.answer())]
        assert codes == expected(lost, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        second.broker.abandon()

    run(scenario, brokers=BROKERS)


def test_reads_and_metadata_do_not_speak_for_a_shard_without_a_lease() -> None:
    async def scenario(world: KafkaWorld) -> None:
        second, client, lost = await prepared(world)
        second.leased = False
        parts = fetched(await client.ask(apis.FETCH, of_all(0)))
        assert [one["error_code"] for one in parts] == expected(
            lost, ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        assert [not one["records"] for one in parts] == [number == lost for number in (0, 1)]
        rows = [{"partition_index": number, "timestamp": -1} for number in (0, 1)]
        body = {"topics": [{"name": "both", "partitions": rows}]}
        (topic,) = (await client.ask(apis.LIST_OFFSETS, body))["topics"]
        assert [one["error_code"] for one in topic["partitions"]] == expected(
            lost, ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        (topic,) = (await client.ask(apis.METADATA, {"topics": None}))["topics"][:1]
        (topic,) = (await client.ask(apis.METADATA, {"topics": [{"name": "both"}]}))["topics"]
        assert [one["error_code"] for one in topic["partitions"]] == expected(
            lost, ErrorCode.LEADER_NOT_AVAILABLE
        )
        second.broker.abandon()

    run(scenario, brokers=BROKERS)


def test_a_waiting_fetch_is_answered_when_a_shard_is_lost() -> None:
    async def scenario(world: KafkaWorld) -> None:
        second, client, lost = await prepared(world)
        client.tell(apis.FETCH, of_all(1, max_wait=50_000, min_bytes=1))
        await until(lambda: world.metric("parked_fetches"))
        world.listener.remove(second.shard)
        parts = fetched(await client.answer())
        assert [one["error_code"] for one in parts] == expected(
            lost, ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        # The other shard is served on, on the same connection.
        kept = 1 - lost
        answer = await client.ask(apis.PRODUCE, produce(batch(b"e"), topic="both", number=kept))
        assert produced(answer) == [(ErrorCode.NONE, 1)]
        (part,) = fetched(await client.ask(apis.FETCH, fetch(1, topic="both", number=kept)))
        assert part["error_code"] == ErrorCode.NONE
        second.broker.abandon()

    run(scenario, brokers=BROKERS)


def test_an_answer_about_topics_does_not_leave_without_the_shard_that_knows_them() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        world.stall()
        row = {"name": "new", "num_partitions": 1, "replication_factor": 1}
        client.tell(apis.CREATE_TOPICS, {"topics": [row], "timeout": 1_000})
        await until(lambda: world.broker.topics.lookup("new") is not None)
        client.tell(apis.METADATA, {"topics": None})
        world.listener.remove(world.shard)
        await world.go_on()
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="moved") == 1
        other = await world.connect()
        answer = await other.ask(apis.METADATA, {"topics": None})
        assert answer["topics"] == []

    run(scenario)
