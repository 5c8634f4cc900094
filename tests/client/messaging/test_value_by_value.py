"""Messages that have nothing but a value are appended to a batch the short way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Batching, Client, ClientClosed, MessageTooLarge
from magnetar.messaging.sending.partition_sender import PartitionSender
from magnetar_core.batch import decode
from magnetar_core.errors import InvalidArgument, InvalidTxnState, QuotaExceeded


def kinds(random: random.Random, number: int) -> dict[str, Any]:
    """What a message has besides its value, mostly nothing."""
    if random.random() < 0.9:
        return {}
    return random.choice(
        (
            {"key": b"%d" % number},
            {"properties": {"number": str(number)}},
            {"event_time_ms": number},
            {"partition": 0},
        )
    )


@pytest.mark.parametrize("batching", list(Batching))
@pytest.mark.parametrize("seed", range(4))
def test_batches_keep_order_and_limits_whatever_is_among_them(
    seed: int, batching: Batching
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer(
            "flights", batching=batching, batch_messages_max=16, batch_bytes_max=600
        )
        chance = random.Random(seed)
        sent = []
        for number in range(400):
            value = b"%d " % number + b"x" * chance.choice((0, 5, 30, 90))
            others = kinds(chance, number)
            sent.append((value, others))
            if chance.random() < 0.5:
                await producer.enqueue(value, **others)
            else:
                producer.send_nowait(value, **others)
        await producer.flush()
        found: dict[bytes, list[Any]] = {}
        for one in partition.batches:
            columns = decode(one[2])
            assert columns.count <= 16
            assert sum(map(len, columns.values())) + 16 * columns.count <= 600
            keys = columns.keys() or [None] * columns.count
            properties: Any = columns.properties() or [{}] * columns.count
            times = [columns.event_time_ms(place) for place in range(columns.count)]
            for value, *rest in zip(columns.values(), keys, properties, times, strict=True):
                found[value] = rest
        for value, others in sent:
            assert found[value] == [
                others.get("key"),
                others.get("properties", {}),
                others.get("event_time_ms"),
            ]
        if batching is Batching.MIXED:
            assert list(found) == [value for value, _ in sent]
            # The batches are full: none leaves because of what is among its messages.
            counts = [decode(batch[2]).count for batch in partition.batches]
            assert sum(counts) == 400
            assert len(counts) <= 80

    run(test)


@pytest.mark.parametrize("is_in_txn", [False, True])
def test_most_values_go_the_short_way(monkeypatch: pytest.MonkeyPatch, is_in_txn: bool) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 2)
        txn = await client.begin_transaction() if is_in_txn else None
        producer = await client.create_producer("flights", batch_messages_max=100)
        calls = 0
        add = PartitionSender.add

        def counted(self: PartitionSender, *arguments: Any) -> None:
            nonlocal calls
            calls += 1
            add(self, *arguments)

        monkeypatch.setattr(PartitionSender, "add", counted)
        for number in range(500):
            await producer.enqueue(b"%d" % number, txn=txn)
            producer.send_nowait(b"%d again" % number, txn=txn)
        await producer.flush()
        # The first and the last of each batch, which have more to do.
        assert calls == 20

    run(test)


def test_a_transaction_that_has_ended_or_failed_takes_no_value_the_short_way() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        for end in ("abort", "doom"):
            txn = await client.begin_transaction()
            for _ in range(3):
                await producer.enqueue(b"a", txn=txn)
            if end == "abort":
                await txn.abort()
            else:
                txn.work.doom(QuotaExceeded("enough"))
            with pytest.raises(InvalidTxnState):
                await producer.enqueue(b"b", txn=txn)
            with pytest.raises(InvalidTxnState):
                producer.send_nowait(b"b", txn=txn)

    run(test)


def test_values_of_a_transaction_stay_out_of_the_others() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        first, second = [await client.begin_transaction() for _ in range(2)]
        for number in range(20):
            for txn, name in ((first, b"first"), (second, b"second"), (None, b"plain")):
                await producer.enqueue(b"%s %d" % (name, number), txn=txn)
        await producer.flush()
        expected: list[bytes] = []
        for txn, name in ((None, b"plain"), (first, b"first"), (second, b"second")):
            if txn is not None:
                await txn.commit()
            expected += [b"%s %d" % (name, number) for number in range(20)]
            assert partition.messages == expected

    run(test)


def test_limits_and_types_are_checked_behind_a_first_message() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", message_bytes_max=100)
        producer.send_nowait(b"a")
        with pytest.raises(MessageTooLarge):
            producer.send_nowait(b"x" * 101)
        with pytest.raises(MessageTooLarge):
            await producer.enqueue(b"x" * 101)
        with pytest.raises(InvalidArgument):
            await producer.enqueue("text")  # type: ignore[arg-type]
        await producer.enqueue(b"x" * 100)
        producer.send_nowait(bytearray(b"b"))  # type: ignore[arg-type]
        await producer.close()
        for send in (producer.enqueue, producer.send):
            with pytest.raises(ClientClosed):
                await send(b"c")
        with pytest.raises(ClientClosed):
            producer.send_nowait(b"c")
        assert partition.messages == [b"a", b"x" * 100, b"b"]

    run(test)


def test_a_batch_leaves_though_all_others_went_the_short_way() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=1)
        for number in range(10):
            await producer.enqueue(b"%d" % number)
        await cluster.play.came("send", 1)
        assert partition.messages == [b"%d" % number for number in range(10)]

    run(test)
