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
    assert columns.keys() == [b"", b"k", b"l", b"", b""]
    assert columns.properties() == [{}, {}, {}, {"x": "y"}, {}]
    assert [columns.event_time_ms(place) for place in range(5)] == [None, None, None, 9, None]


def test_a_keys_partition_never_changes() -> None:
    """The published check value of CRC-32C."""
    assert partition_of_key(b"123456789", 1 << 32) == 0xE3069283
    assert partition_of_key(b"123456789", 8) == 0xE3069283 % 8
