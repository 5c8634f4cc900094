"""Expectations of programs: the same tests for a cluster in memory and for processes."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from pathlib import Path

import pytest

import magnetar
from magnetar import blocking
from magnetar.blocking import Client
from magnetar.dual_write import DbApiStore, DualWriter
from magnetar.errors import (
    CommitRefused,
    ConsumerBusy,
    InvalidArgument,
    InvalidTxnState,
    MessageTooLarge,
    OutOfRange,
    ProducerFenced,
    SequenceCommitted,
    TopicExists,
    TopicNotFound,
    TransactionalIdNotFound,
    TransactionConflict,
)

# Ends a test that hangs.
PATIENCE_S = 60.0


def values(client: Client, topic: str) -> list[bytes | None]:
    return [one.value_or_none for one in client.read(topic)]


def fill(client: Client, topic: str, sent: list[bytes]) -> None:
    with client.create_producer(topic) as producer:
        producer.send_many(sent)


def test_messages_come_as_they_were_sent(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    sent = producer.send(b"value", b"key", properties={"a": "b"}, event_time_ms=4471)
    producer.send(None, b"key")
    first, second = client.read(topic)
    assert (first.value, first.key, first.properties) == (b"value", b"key", {"a": "b"})
    assert (first.event_time_ms, first.message_id) == (4471, sent)
    assert second.value_or_none is None


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_batches_of_a_codec(client: Client, topic: str, codec: magnetar.enums.CodecName) -> None:
    producer = client.create_producer(topic, codec=codec)
    producer.send_many([b"%d" % number * 100 for number in range(1_000)])
    producer.flush()
    assert values(client, topic) == [b"%d" % number * 100 for number in range(1_000)]


def test_a_large_message(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"x" * (3 << 20))
    with pytest.raises(MessageTooLarge):
        client.create_producer(topic, message_bytes_max=1_000).send(b"x" * 1_001)
    assert [len(one.value) for one in client.read(topic)] == [3 << 20]


def test_the_key_decides_the_partition(client: Client, name: str) -> None:
    client.admin.topics.create(name, partitions=8)
    producer = client.create_producer(name)
    for key in (b"a", b"b", b"c") * 3:
        producer.send(b"v", key)
    places = {(one.key, one.partition) for one in client.read(name)}
    assert len(places) == 3


def test_a_topic_is_made_once(client: Client, topic: str) -> None:
    with pytest.raises(TopicExists):
        client.admin.topics.create(topic)
    client.admin.topics.create(topic, exist_ok=True)
    client.admin.topics.delete(topic)
    with pytest.raises(TopicNotFound):
        client.admin.topics.describe(topic)


def test_a_topic_that_is_not_there(client: Client, name: str) -> None:
    with pytest.raises(TopicNotFound):
        client.create_producer(name)
    with pytest.raises(TopicNotFound):
        client.subscribe(name, "s")


def test_a_bad_name_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument):
        client.admin.topics.create("no spaces")


def test_a_topic_grows(client: Client, topic: str) -> None:
    client.admin.topics.alter(topic, partitions=3, keys_move=True)
    assert len(client.admin.topics.describe(topic).partitions) == 3


def test_a_committed_transaction_is_there_as_a_whole(client: Client, topic: str) -> None:
    with client.transaction() as txn:
        txn.send(topic, b"one")
        txn.send(topic, b"two")
        assert values(client, topic) == []
    assert values(client, topic) == [b"one", b"two"]


def test_an_aborted_transaction_leaves_nothing(client: Client, topic: str) -> None:
    def give_up() -> None:
        with client.transaction() as txn:
            txn.send(topic, b"one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    client.create_producer(topic).send(b"plain")
    assert values(client, topic) == [b"plain"]


def test_an_open_transaction_delays_nobody(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    txn = client.begin_transaction()
    producer.send(b"inside", txn=txn)
    producer.send(b"beside", txn=None)
    assert values(client, topic) == [b"beside"]
    txn.commit(wait_finished=True)
    assert values(client, topic) == [b"beside", b"inside"]


def test_a_transaction_ends_once(client: Client, topic: str) -> None:
    txn = client.begin_transaction()
    txn.send(topic, b"v")
    txn.commit()
    with pytest.raises(InvalidTxnState):
        txn.abort()
    with pytest.raises(InvalidTxnState):
        txn.send(topic, b"late")


def test_a_transaction_expires(client: Client, topic: str) -> None:
    txn = client.begin_transaction(timeout_s=0.3)
    txn.send(topic, b"v")
    while client.admin.transactions.list():
        pass
    with pytest.raises((InvalidTxnState, CommitRefused)):
        txn.commit()
    assert values(client, topic) == []


def test_a_transaction_of_several_topics(client: Client, name: str) -> None:
    topics = [f"{name}-{number}" for number in range(3)]
    for topic in topics:
        client.admin.topics.create(topic, partitions=3)
    with client.transaction() as txn:
        for topic, key in itertools.product(topics, (b"a", b"b", b"c", b"d")):
            txn.send(topic, b"v", key)
    assert [len(values(client, topic)) for topic in topics] == [4, 4, 4]


def test_a_lazy_transaction_of_a_batch(client: Client, topic: str) -> None:
    with client.transaction(lazy=True) as txn:
        txn.send(topic, b"v")
    assert values(client, topic) == [b"v"]


def test_consume_transform_produce(client: Client, topic: str, name: str) -> None:
    client.admin.topics.create(name)
    fill(client, topic, [b"1", b"2", b"3"])
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    for _ in range(3):
        message = consumer.receive(PATIENCE_S)
        with client.transaction() as txn:
            txn.send(name, message.value * 2)
            consumer.ack(message, txn=txn)
    assert values(client, name) == [b"11", b"22", b"33"]
    backlog = client.admin.topics.describe(topic).partitions[0].subscriptions[0].backlog
    assert backlog == 0


def test_an_aborted_ack_gives_the_message_back(client: Client, topic: str) -> None:
    client.create_producer(topic).send(b"v")
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    txn = client.begin_transaction()
    consumer.ack(consumer.receive(PATIENCE_S), txn=txn)
    txn.abort()
    again = consumer.receive(PATIENCE_S)
    assert again.value == b"v"
    consumer.ack(again, txn=None)


def test_two_transactions_cannot_have_the_same_message(client: Client, topic: str) -> None:
    client.create_producer(topic).send(b"v")
    consumer = client.subscribe(topic, "s", initial_position="earliest", type="shared")
    message = consumer.receive(PATIENCE_S)
    first, second = client.begin_transaction(), client.begin_transaction()
    consumer.ack(message, txn=first)
    with pytest.raises(TransactionConflict):
        consumer.ack(message, txn=second)
    with pytest.raises(CommitRefused):
        second.commit()
    first.commit()


def test_a_message_given_back_comes_again(client: Client, topic: str) -> None:
    client.create_producer(topic).send(b"v")
    consumer = client.subscribe(topic, "s", initial_position="earliest", type="shared")
    message = consumer.receive(PATIENCE_S)
    assert message.redelivery_count == 0
    consumer.nack(message, delay_s=0.0)
    assert consumer.receive(PATIENCE_S).redelivery_count == 1


def test_what_is_not_acknowledged_comes_to_the_next_consumer(client: Client, topic: str) -> None:
    fill(client, topic, [b"1", b"2"])
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    consumer.ack(consumer.receive(PATIENCE_S))
    consumer.receive(PATIENCE_S)
    consumer.close()
    following = client.subscribe(topic, "s")
    assert following.receive(PATIENCE_S).value == b"2"


def test_an_exclusive_subscription_has_one_consumer(client: Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(ConsumerBusy):
        client.subscribe(topic, "s")


def test_keys_stay_together(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumers = [
        client.subscribe(topic, "s", type="key_shared", initial_position="earliest")
        for _ in range(2)
    ]
    for number in range(40):
        producer.send(b"v", b"key-%d" % (number % 10))
    seen: dict[bytes | None, set[int]] = {}
    count = 0
    for place, consumer in itertools.cycle(enumerate(consumers)):
        for message in consumer.receive_batch(timeout_s=0.01):
            seen.setdefault(message.key, set()).add(place)
            consumer.ack(message)
            count += 1
        if count == 40:
            break
    assert all(len(places) == 1 for places in seen.values())


def test_a_consumer_seeks(client: Client, topic: str) -> None:
    fill(client, topic, [b"1", b"2", b"3"])
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    consumer.seek(offset=2)
    assert consumer.receive(PATIENCE_S).value == b"3"


def test_a_read_behind_the_end_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(OutOfRange):
        list(client.read(topic, 0, 7, 9))


def test_offsets(client: Client, topic: str) -> None:
    fill(client, topic, [b"1", b"2", b"3"])
    found = client.admin.topics.list_offsets(topic)
    assert [(one.first_offset, one.end_offset) for one in found.partitions] == [(0, 3)]


def test_members_of_a_group_share_partitions(client: Client, name: str) -> None:
    client.admin.topics.create(name, partitions=4)
    producer = client.create_producer(name)
    for partition in range(4):
        producer.send(b"%d" % partition, partition=partition)
    first = client.consumer_group(f"g-{name}", name, initial_position="earliest")
    second = client.consumer_group(f"g-{name}", name, initial_position="earliest")
    seen: set[bytes] = set()
    while len(seen) < 4:
        for member in (first, second):
            for message in member.receive_batch(timeout_s=0.05):
                seen.add(message.value)
                member.ack(message)
    found = client.admin.groups.describe(f"g-{name}")
    assert found.summary.members == 2


def test_a_newer_instance_fences_the_older_one(client: Client, topic: str, name: str) -> None:
    first = client.transactional_producer(name)
    first.init()
    first.begin()
    first.send(topic, b"old")
    second = client.transactional_producer(name)
    second.init()
    with pytest.raises(ProducerFenced):
        first.commit()
    second.begin()
    second.send(topic, b"new")
    second.commit()
    assert values(client, topic) == [b"new"]


def test_a_prepared_transaction_is_completed(client: Client, topic: str, name: str) -> None:
    producer = client.transactional_producer(name, two_phase_commit=True)
    producer.init()
    producer.begin()
    producer.send(topic, b"v")
    prepared = producer.prepare()
    later = client.transactional_producer(name, two_phase_commit=True)
    assert later.init(keep_prepared=True) == prepared
    assert later.complete(prepared)
    assert values(client, topic) == [b"v"]


def test_an_unknown_transactional_id(client: Client, name: str) -> None:
    with pytest.raises(TransactionalIdNotFound):
        client.admin.transactional_ids.describe(name)


def test_a_sequence_of_a_name_is_committed_once(client: Client, topic: str, name: str) -> None:
    txn = client.begin_named_transaction(name, 1, "run")
    txn.send(topic, b"v")
    txn.commit()
    with pytest.raises(SequenceCommitted):
        client.begin_named_transaction(name, 1, "another")
    assert values(client, topic) == [b"v"]


def test_a_database_and_a_topic(client: Client, topic: str, name: str, tmp_path: Path) -> None:
    store = DbApiStore(sqlite3.connect(tmp_path / "rows.db"), sqlite3.paramstyle)
    store.execute("CREATE TABLE orders (item TEXT)")
    store.commit()
    writer = DualWriter(client.transactional_producer(name, two_phase_commit=True), store)
    writer.start()
    with writer.unit() as unit:
        unit.store.execute("INSERT INTO orders VALUES (?)", ("tea",))
        unit.send(topic, b"tea")
    assert store.execute("SELECT item FROM orders").fetchall() == [("tea",)]
    assert values(client, topic) == [b"tea"]
    store.close()


def test_a_cut_has_a_transaction_as_a_whole_or_not(client: Client, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for one in topics:
        client.admin.topics.create(one)
    with client.transaction() as txn:
        for one in topics:
            txn.send(one, b"first")
    cut = client.cut(topics)
    with client.transaction() as txn:
        for one in topics:
            txn.send(one, b"second")
    assert [[m.value for m in client.read(one, at=cut)] for one in topics] == [[b"first"]] * 2


def test_the_cluster_describes_itself(client: Client) -> None:
    info = client.admin.cluster_info()
    assert [one.name for one in info.brokers] == ["broker-0"]
    assert [one.name for one in info.coordinators] == ["coordinator-0"]


def test_many_threads_share_a_client(client: Client, topic: str) -> None:
    producer = client.create_producer(topic)

    def send(place: int) -> None:
        for number in range(20):
            producer.send(b"%d %d" % (place, number))

    threads = [threading.Thread(target=send, args=(place,)) for place in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(values(client, topic))) == 160


def test_clients_of_both_kinds_meet(address: str, client: Client, topic: str) -> None:
    async def program() -> list[bytes]:
        async with await magnetar.connect(address) as other:
            consumer = await other.subscribe(topic, "s", initial_position="earliest")
            sent = asyncio.to_thread(client.create_producer(topic).send, b"v")
            got, _ = await asyncio.gather(consumer.receive(PATIENCE_S), sent)
            await consumer.ack(got)
            return [one.value async for one in other.read(topic)]

    assert asyncio.run(program()) == [b"v"]


def test_a_client_survives_the_end_of_another(address: str, client: Client, topic: str) -> None:
    with blocking.connect(address) as other:
        other.create_producer(topic).send(b"1")
    client.create_producer(topic).send(b"2")
    assert values(client, topic) == [b"1", b"2"]
