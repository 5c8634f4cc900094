"""Kafka's RecordBatch: what is read is what was written, and nothing else does harm."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core import batch as columnar
from magnetar_core import record_batch
from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MagnetarError, MessageTooLarge
from magnetar_core.record_batch import HEAD_BYTES, NO_TIMESTAMP, Record

BYTES_MAX = 1 << 20
some_bytes = st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        st.integers(0, 1 << 50),
        st.none() | some_bytes,
        st.none() | some_bytes,
        st.lists(st.tuples(some_bytes, st.none() | some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def snappy_literal(data: bytes) -> bytes:
    """A block of Snappy that has nothing but literals."""
    out = bytearray()
    size = len(data)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out.append((len(piece) - 1) << 2)
        out += piece
    return bytes(out)


def java_snappy(data: bytes) -> bytes:
    halves = (data[: len(data) // 2], data[len(data) // 2 :])
    blocks = [snappy_literal(half) for half in halves]
    head = b"\x82SNAPPY\x00" + bytes(8)
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return compressor.compress(data) + compressor.flush()


COMPRESSIONS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (record_batch.GZIP, gzip),
    (record_batch.SNAPPY, snappy_literal),
    (record_batch.SNAPPY, java_snappy),
    (record_batch.LZ4, lambda data: bytes(lz4.frame.compress(data))),
    (record_batch.ZSTD, zstandard.compress),
]


def compressed(batch: bytes, codec: int, compress: Callable[[bytes], bytes]) -> bytes:
    made = bytearray(batch[:HEAD_BYTES] + compress(batch[HEAD_BYTES:]))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[21:23] = codec.to_bytes(2, "big")
    return bytes(made)


@given(records)
def test_records_are_read_as_they_were_written(written: list[Record]) -> None:
    made = record_batch.encode_records(written, base_offset=7)
    head = record_batch.read_head(made)
    record_batch.check_checksum(made, head)
    assert (head.base_offset, head.count) == (7, len(written))
    assert head.max_timestamp_ms == max(one.timestamp_ms for one in written)
    read = record_batch.read_records(memoryview(made), bytes_max=BYTES_MAX)
    assert [one._replace(headers=list(one.headers)) for one in read] == written
    for codec, compress in COMPRESSIONS:
        again = compressed(made, codec, compress)
        assert record_batch.read_records(memoryview(again), bytes_max=BYTES_MAX) == read


@given(
    records, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4), st.integers(0)
)
def test_damage_is_an_error_or_is_read(
    written: list[Record], damage: list[tuple[int, int]], cut: int
) -> None:
    made = record_batch.encode_records(written, base_offset=0)
    for codec, compress in [(0, bytes), *COMPRESSIONS]:
        changed = bytearray(compressed(made, codec, compress))
        for at, value in damage:
            changed[HEAD_BYTES + at % (len(changed) - HEAD_BYTES)] = value
        if cut % 3 == 0:
            del changed[HEAD_BYTES + cut % (len(changed) - HEAD_BYTES) :]
            changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        try:
            record_batch.read_records(memoryview(bytes(changed)), bytes_max=BYTES_MAX)
        except MagnetarError:
            pass


def test_a_small_batch_may_not_open_into_much() -> None:
    made = record_batch.encode_records([Record(0, None, bytes(1 << 20))], base_offset=0)
    for codec, compress in COMPRESSIONS:
        bomb = compressed(made, codec, compress)
        with pytest.raises(MessageTooLarge):
            record_batch.read_records(memoryview(bomb), bytes_max=1 << 16)


def test_copies_of_snappy_are_opened() -> None:
    # "abcd", then 8 bytes from 4 back; then 6 from 1 back, whose distance takes two bytes.
    block = bytes([18, 3 << 2]) + b"abcd" + bytes([(8 - 4) << 2 | 1, 4])
    block += bytes([(6 - 1) << 2 | 2]) + (1).to_bytes(2, "little")
    assert record_batch._snappy_block(block, 100) == b"abcdabcdabcddddddd"
    for wrong in (
        block[:-1],
        block[:4],
        bytes([4, 1, 9]),
        b"\xff" * 9,
        bytes([1, 3 << 2]) + b"abcd",
    ):
        with pytest.raises((IndexError, ValueError, MessageTooLarge)):
            record_batch._snappy_block(wrong, 100)


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (8, ">i", -20, "says that it has"),
        (16, ">b", 1, "format 1"),
        (23, ">i", 5, "ends at offset delta"),
        (57, ">i", 0, "records ends"),
        (57, ">i", -1, "records ends"),
    ],
)
def test_a_head_that_contradicts_itself(at: int, layout: str, value: int, text: str) -> None:
    made = bytearray(record_batch.encode_records([Record(0, None, b"v")] * 2, base_offset=0))
    struct.pack_into(layout, made, at, value)
    with pytest.raises(InvalidArgument, match=text):
        record_batch.read_head(bytes(made))


def test_a_wrong_checksum_is_noticed() -> None:
    made = bytearray(record_batch.encode_records([Record(0, None, b"v")], base_offset=0))
    made[-2] ^= 1
    with pytest.raises(ChecksumMismatch):
        record_batch.check_checksum(bytes(made), record_batch.read_head(bytes(made)))


def test_our_readers_open_it_as_columns() -> None:
    written = [
        Record(5, b"k", b"v", [(b"a", b"1"), (b"a", b"2"), (b"b", None)]),
        Record(NO_TIMESTAMP + 6, None, None, [(b"c", b"\xff")]),
    ]
    wrapped = columnar.wrapped_records(record_batch.encode_records(written, base_offset=0), 2)
    assert columnar.is_of_kafka(wrapped)
    columns = columnar.decode(wrapped)
    assert columns.values() == [b"v", b""]
    assert columns.keys() == [b"k", b""]
    assert columns.properties() == [{"a": "2", "b": ""}, {"c": "ÿ"}]
    assert columns.event_time_ms(0) == 5
    timeless = columnar.wrapped_records(
        record_batch.encode_records([Record(NO_TIMESTAMP, None, b"v")], base_offset=0), 1
    )
    columns = columnar.decode(timeless)
    assert (columns.keys(), columns.event_time_ms(0)) == (None, None)
    with pytest.raises(InvalidArgument, match="port for Kafka's clients"):
        columnar.check_claims(
            columnar.read_header(wrapped), body_bytes_max=BYTES_MAX, messages_max=100
        )
