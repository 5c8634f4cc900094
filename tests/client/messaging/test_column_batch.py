"""Batches that are laid out already, through the same machinery as all others."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import BREAK, LOSE

from magnetar import Client
from magnetar.column_batch import BytesColumn, ColumnBatch
from magnetar_core.batch import NO_EVENT_TIME_MS, Codec, decode, encode
from magnetar_core.errors import InvalidArgument, MessageTooLarge


def column(values: list[bytes]) -> BytesColumn:
    offsets = array("i", [0])
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return BytesColumn(offsets.tobytes(), memoryview(b"".join(values)))


def batch(values: list[bytes], **more: Any) -> ColumnBatch:
    return ColumnBatch(len(values), column(values), **more)


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_and_messages_make_the_same_batch(codec: Codec) -> None:
    values, keys = [b"one", b"", b"three"], [b"k", None, b"k"]
    made = ColumnBatch(
        3, column(values), column([b"k", b"", b"k"]), array("q", [NO_EVENT_TIME_MS, 5, 0]).tobytes()
    )
    expected = encode(values, keys, event_times_ms=[NO_EVENT_TIME_MS, 5, 0], codec=codec)
    assert decode(made.encode(codec)) == decode(expected)
    assert made.byte_count == 2 * 16 + 8 + 2


@pytest.mark.parametrize(
    "columns",
    [
        {"count": 2, "values": column([b"one"])},
        {"count": 1, "values": column([b"one"]), "keys": column([])},
        {"count": 1, "values": column([b"one"]), "event_times_ms": b"1234"},
        {"count": 9, "values": column([b"one"] * 9), "value_bits": b"1"},
        {"count": 1, "values": column([b"one"]), "key_bits": b"\1"},
    ],
)
def test_columns_of_unequal_length(columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        ColumnBatch(**columns)


def test_bits_of_what_is_absent() -> None:
    values = [b"one", None, b"", *[b"x"] * 6]
    keys = [None, b"", b"k", *[b"x"] * 6]
    made = ColumnBatch(
        9,
        column([value or b"" for value in values]),
        column([key or b"" for key in keys]),
        value_bits=bytes((0b11111101, 1)),
        key_bits=bytes((0b11111110, 1)),
    )
    found = decode(made.encode(Codec.NONE))
    assert found == decode(encode(values, keys))
    assert found.values_or_none() == values
    assert found.keys() == keys


def test_a_batch_of_nothing() -> None:
    with pytest.raises(InvalidArgument):
        batch([]).encode(Codec.NONE)


def test_columns_keep_their_place_among_other_sends() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        producer.send_nowait(b"first")
        await producer.send_columns([batch([b"second", b"third"]), batch([b"fourth"])])
        producer.send_nowait(b"fifth")
        await producer.flush()
        assert partition.messages == [b"first", b"second", b"third", b"fourth", b"fifth"]
        assert [one.sequence_id for one in cluster.play.commands("send")] == [0, 1, 3, 4]

    run(test)


def test_columns_are_sent_again_in_order() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        cluster.play.when("send").in_turn(LOSE, None, BREAK)
        producer = await client.create_producer("t")
        async with client.transaction() as txn:
            for number in range(5):
                await producer.send_columns([batch([b"%d" % number])], partition=0, txn=txn)
        assert partition.messages == [b"%d" % number for number in range(5)]

    run(test)


def test_columns_that_no_broker_takes() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", whole_bytes_max=1_000)
        with pytest.raises(MessageTooLarge):
            await producer.send_columns([batch([bytes(3_000)])])
        await producer.send_columns([batch([bytes(500)])])
        await producer.flush()

    run(test)
