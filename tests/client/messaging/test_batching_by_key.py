"""Batches with a single key each: the header has the key, and sequences have no gaps."""

from __future__ import annotations

import asyncio

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fakes import FakeCluster, Partition, run
from tests.playbook import BREAK, LOSE
from tests.virtual_time import time_passes

from magnetar import Batching, Client, InvalidArgument, MessageId
from magnetar.enums import TransactionStatus
from magnetar.messaging.sending.batching import OpenBatchesByKey
from magnetar_core.batch import decode, read_header


def batches_of(partition: Partition) -> list[tuple[list[bytes], list[bytes]]]:
    """Keys and values of each batch; each has one key, and its header says which."""
    found = []
    for _, _, batch, *_ in partition.batches:
        columns = decode(batch)
        keys = columns.keys() or [b""] * columns.count
        assert len(set(keys)) == 1
        assert read_header(batch).key_hash == google_crc32c.value(keys[0])
        found.append((keys, columns.values()))
    return found


def test_each_key_has_batches_of_its_own() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching="by_key")
        for number in range(3):
            for key in (b"a", b"b", None, b""):
                producer.send_nowait(b"%d" % number, key)
        await producer.flush()
        assert batches_of(partition) == [
            ([b"a"] * 3, [b"0", b"1", b"2"]),
            ([b"b"] * 3, [b"0", b"1", b"2"]),
            ([b""] * 6, [b"0", b"0", b"1", b"1", b"2", b"2"]),
        ]
        assert [one.sequence_id for one in cluster.play.commands("send")] == [0, 3, 6]

    run(test)


def test_mixed_keys_share_batches_unless_told_otherwise() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching=Batching.MIXED)
        producer.send_nowait(b"0", b"a")
        producer.send_nowait(b"1", b"b")
        await producer.flush()
        assert len(partition.batches) == 1
        with pytest.raises(InvalidArgument, match="by_key"):
            await client.create_producer("flights", batching="by_color")  # type: ignore[arg-type]

    run(test)


def test_many_at_once_keep_the_order_of_each_key() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        partitions = cluster.topic("flights", 3)
        producer = await client.create_producer(
            "flights", batching="by_key", batch_messages_max=20, linger_ms=0
        )
        values = [b"%d" % number for number in range(200)]
        keys = [b"k%d" % (number % 7) for number in range(200)]
        await producer.send_many(values, keys)
        await producer.send_many(values)
        await producer.flush()
        seen: dict[bytes, list[bytes]] = {}
        for partition in partitions:
            for some_keys, some_values in batches_of(partition):
                seen.setdefault(some_keys[0], []).extend(some_values)
        assert sorted(seen.pop(b"")) == sorted(values)
        assert seen == {b"k%d" % one: values[one::7] for one in range(7)}

    run(test)


def test_what_is_gathered_is_bounded_for_all_keys_together() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer(
            "flights", batching="by_key", batch_messages_max=10, linger_ms=60_000
        )
        for number in range(30):
            producer.send_nowait(b"v", b"%d" % number)
        await time_passes(0.01)
        assert len(partition.messages) == 30, "they left without a flush"
        large = await client.create_producer(
            "flights", batching="by_key", batch_bytes_max=1000, linger_ms=60_000
        )
        for number in range(9):
            large.send_nowait(bytes(100), b"%d" % number)
        await time_passes(0.01)
        assert len(partition.messages) == 38, "the ninth did not fit, and waits"
        await large.flush()
        assert len(batches_of(partition)) == 39

    run(test)


def test_awaited_sends_get_the_ids_of_their_own_batches() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching="by_key", linger_ms=0)
        sent = await asyncio.gather(
            *(producer.send(b"%d" % number, b"k%d" % (number % 3)) for number in range(9))
        )
        for number, message_id in enumerate(sent):
            assert isinstance(message_id, MessageId)
            assert partition.messages[message_id.offset] == b"%d" % number

    run(test)


@pytest.mark.parametrize("fault", [LOSE, BREAK])
def test_batches_in_flight_are_sent_again_in_order_after_a_break(fault: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send").on(3, 9, reaction=fault)
        producer = await client.create_producer(
            "flights", batching="by_key", batch_messages_max=6, linger_ms=0
        )
        for number in range(60):
            producer.send_nowait(b"%d" % number, b"k%d" % (number % 3))
        await producer.flush()
        for one in range(3):
            wanted = [b"k%d" % one]
            of_key = [v for keys, some in batches_of(partition) for v in some if keys[:1] == wanted]
            assert of_key == [b"%d" % number for number in range(one, 60, 3)]

    run(test)


def test_a_transaction_has_batches_by_key_too() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching="by_key")
        async with client.transaction() as txn:
            for number in range(6):
                producer.send_nowait(b"%d" % number, b"k%d" % (number % 2), txn=txn)
        assert txn.status in (TransactionStatus.COMMITTED, TransactionStatus.COMMITTING)
        assert partition.messages == [b"0", b"2", b"4", b"1", b"3", b"5"]

    run(test)


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("way", ["nowait", "many", "awaited"])
def test_a_lazy_transaction_of_several_keys_has_to_begin(keys: int, way: str) -> None:
    """It has more than one batch: they would not be stored together."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching="by_key", linger_ms=0)
        async with client.transaction(lazy=True) as txn:
            for number in range(6):
                key = b"k%d" % (number % keys)
                if way == "many":
                    await producer.send_many([b"%d" % number], [key], txn=txn)
                elif way == "nowait" or number < 5:
                    producer.send_nowait(b"%d" % number, key, txn=txn)
                else:
                    await producer.send(b"%d" % number, key, txn=txn)
        begins = keys > 1 or way == "awaited"
        assert len(cluster.play.commands("new_txn")) == int(begins)
        assert all(one.HasField("txn_id") is begins for one in cluster.play.commands("send"))
        assert sorted(partition.messages) == [b"%d" % number for number in range(6)]

    run(test)


def test_a_lazy_transaction_of_several_keys_can_abort() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", batching="by_key", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        for number in range(4):
            producer.send_nowait(b"%d" % number, b"k%d" % number, txn=txn)
        await txn.abort()
        await producer.send(b"plain", b"k1")
        assert partition.messages == [b"plain"]

    run(test)


@given(st.lists(st.tuples(st.sampled_from([None, b"", b"a", b"b"]), st.integers(0, 50))))
def test_sizes_add_up(messages: list[tuple[bytes | None, int]]) -> None:
    gathered = OpenBatchesByKey()
    for key, size in messages:
        gathered.add(bytes(size), key)
    assert gathered.count == sum(batch.count for batch in gathered.batches) == len(messages)
    assert gathered.size == sum(batch.size for batch in gathered.batches)
