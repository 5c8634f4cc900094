"""Batches of Kafka's clients before readers of ours, and at the edges of a log."""

from __future__ import annotations

from tests.broker.harness import ack, flow, send, subscribe
from tests.kafka_clients.harness import KafkaWorld, Record, batch, fetch, fetched, produce, run
from tests.kafka_clients.test_fetch import opened

from magnetar_core.wire import broker_pb2 as wire
from magnetar_kafka.wire import apis

KEYS = [b"k%d" % (number % 5) for number in range(20)]


def test_a_key_shared_subscription_keeps_the_order_of_keys() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for consumer in (1, 2):
            await world.client.ask(subscribe(consumer=consumer, kind=wire.KEY_SHARED))
        records = [Record(1, key, b"%d" % number) for number, key in enumerate(KEYS)]
        await client.ask(apis.PRODUCE, produce(batch(of=records[:15])))
        await client.ask(apis.PRODUCE, produce(batch(of=records[15:])))
        for consumer in (1, 2):
            world.client.tell(flow(consumer=consumer))
        await world.settle()
        holders: dict[bytes, set[int]] = {}
        for delivered in world.client.delivered:
            for one in delivered.batches:
                gone = {at for part in one.excluded for at in range(part.first, part.last + 1)}
                for offset in range(one.entry_id, one.entry_id + one.num_messages):
                    if offset not in gone:
                        holders.setdefault(KEYS[offset], set()).add(delivered.consumer_id)
        assert sorted(holders) == sorted(set(KEYS))
        assert all(len(one) == 1 for one in holders.values())

    run(scenario)


def test_acks_of_single_messages_of_a_batch() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await world.client.ask(subscribe(consumer=1))
        await client.ask(apis.PRODUCE, produce(batch(b"a", b"b", b"c")))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"a", b"b", b"c"]
        await world.client.ask(ack((0, 0)))
        await world.client.ask(ack((2, 2)))
        assert world.subscription().backlog == 1

    run(scenario)


def test_both_kinds_of_batches_lie_in_one_log() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(batch(b"a")))
        await world.client.ask(send(b"b", b"c"))
        await client.ask(apis.PRODUCE, produce(batch(b"d", b"e")))
        expected = [b"a", b"b", b"c", b"d", b"e"]
        assert await world.read() == expected
        assert await world.read(4) == [b"e"]
        await world.restart()
        client = await world.connect()
        (part,) = fetched(await client.ask(apis.FETCH, fetch()))
        assert opened(part["records"]) == list(enumerate(expected))
        # A client drops what lies before the offset that it asked for.
        (part,) = fetched(await client.ask(apis.FETCH, fetch(4)))
        assert opened(part["records"]) == [(3, b"d"), (4, b"e")]

    run(scenario)


def test_a_log_that_retention_has_shortened() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for value in (b"a", b"b", b"c"):
            await client.ask(apis.PRODUCE, produce(batch(value)))
        partition = world.partition()
        entries = partition.log.tail_from(0, entries_max=2)
        partition.trim(entries)
        await world.settle()
        (part,) = fetched(await client.ask(apis.FETCH, fetch(0)))
        assert (part["error_code"], part["log_start_offset"]) == (1, 2)
        (part,) = fetched(await client.ask(apis.FETCH, fetch(2)))
        assert opened(part["records"]) == [(2, b"c")]

    run(scenario)
