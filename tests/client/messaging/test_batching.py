"""The division of values into batches."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.messaging.sending.batching import (
    MESSAGE_OVERHEAD_BYTES,
    OpenBatch,
    cut,
    partition_of_key,
)
from magnetar_core.batch import Codec, decode


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 300), max_size=60),
    st.integers(0, 400),
    st.integers(0, 7),
)
def test_pieces_are_whole_in_order_and_as_large_as_allowed(
    lengths: list[int], room_bytes: int, room_messages: int
) -> None:
    values = [b"x" * length for length in lengths]
    pieces = list(
        cut(
            values,
            values,
            room_bytes=room_bytes,
            room_messages=room_messages,
            batch_bytes_max=400,
            batch_messages_max=7,
        )
    )
    at = 0
    for number, (start, stop, size) in enumerate(pieces):
        assert start == at
        assert size == sum(2 * one + MESSAGE_OVERHEAD_BYTES for one in lengths[start:stop])
        assert stop - start <= (room_messages if number == 0 else 7)
        limit = room_bytes if number == 0 else 400
        assert size <= limit or (stop == start + 1 and limit == 400)
        assert stop > start or number == 0
        at = stop
    assert at == len(values)


def test_columns_appear_with_the_first_message_that_needs_them() -> None:
    batch = OpenBatch()
    batch.add(b"a")
    batch.extend([b"b", b"c"], [b"k", b"l"], 40)
    batch.add(b"d", None, b'{"x": "y"}', 9)
    batch.extend([b"e"], None, 20)
    columns = decode(batch.encode(Codec.LZ4))
    assert columns.values() == [b"a", b"b", b"c", b"d", b"e"]
    assert columns.keys() == [None, b"k", b"l", None, None]
    assert columns.properties() == [{}, {}, {}, {"x": "y"}, {}]
    assert [columns.event_time_ms(place) for place in range(5)] == [None, None, None, 9, None]


def test_a_batch_with_tombstones_and_empty_keys() -> None:
    batch = OpenBatch()
    batch.add(b"a")
    batch.add(None, b"k")
    batch.extend([b"b", None], None, 40)
    batch.extend([b"", None], [b"", None], 40)
    batch.add(b"c", b"")
    assert batch.size == 40 + 40 + 3 + 3 * MESSAGE_OVERHEAD_BYTES
    columns = decode(batch.encode(Codec.ZSTD))
    assert columns.values_or_none() == [b"a", None, b"b", None, b"", None, b"c"]
    assert columns.keys() == [None, b"k", None, None, b"", None, b""]


def test_what_is_absent_counts_nothing_when_values_are_cut() -> None:
    absent = list(
        cut(
            [b"x" * 50, None, None, b"y" * 50],
            [None, b"k", None, b""],
            room_bytes=100,
            room_messages=9,
            batch_bytes_max=100,
            batch_messages_max=9,
        )
    )
    assert absent == [(0, 3, 50 + 1 + 3 * MESSAGE_OVERHEAD_BYTES), (3, 4, 66)]


def test_a_keys_partition_never_changes() -> None:
    """The published check value of CRC-32C."""
    assert partition_of_key(b"123456789", 1 << 32) == 0xE3069283
    assert partition_of_key(b"123456789", 8) == 0xE3069283 % 8
