"""Records of Kafka: what other projects' clients write is read, and what is written they read.

Batches that lie are refused with an error of ours, and with as much memory as the limit allows.
"""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import google_crc32c
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar_core.errors import InvalidArgument, MagnetarError, MessageTooLarge
from magnetar_core.kafka_records import snappy
from magnetar_core.kafka_records.headers import (
    BASE64_PREFIX,
    NULL_TEXT,
    headers_of,
    properties_of,
)
from magnetar_core.kafka_records.reading import Headers, Records, read_records
from magnetar_core.kafka_records.writing import varint, write_records
from magnetar_core.record_batch import (
    CONTROL,
    GZIP,
    HEAD_BYTES,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    check_checksum,
    read_head,
    with_head,
)

LIMIT = 1 << 20
COMPRESSIONS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)

# Timestamp, key, value, headers.
Row = tuple[int, bytes | None, bytes | None, Headers]
NAMES = st.text(max_size=5).map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=200)), max_size=4)
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(
        st.integers(0, 1 << 41),
        st.none() | st.binary(max_size=70) | st.integers(8_180, 8_200).map(bytes),
        st.none() | st.binary(max_size=200) | st.integers(8_180, 8_200).map(bytes),
        st.just([]) | HEADERS,
    ),
    min_size=1,
    max_size=20,
)


def columns(rows: list[Row]) -> Records:
    keys = [key for _, key, _, _ in rows]
    return Records(
        [value for _, _, value, _ in rows],
        keys if set(keys) != {None} else None,
        [time_ms for time_ms, *_ in rows],
        {place: headers for place, (*_, headers) in enumerate(rows) if headers},
    )


def written(rows: list[Row], compression: int = NONE, base_offset: int = 7) -> bytes:
    return write_records(*columns(rows), base_offset=base_offset, compression=compression)


def kafka_python(batch: bytes) -> list[Row]:
    module = pytest.importorskip("kafka.record.default_records")
    return _theirs(module.DefaultRecordBatch(batch))


def aiokafka(batch: bytes) -> list[Row]:
    module = pytest.importorskip("aiokafka.record.default_records")
    return _theirs(module.DefaultRecordBatch(batch))


def _theirs(opened: Any) -> list[Row]:
    assert opened.validate_crc()
    return [
        (one.timestamp, one.key, one.value, [(name.encode(), text) for name, text in one.headers])
        for one in opened
    ]


def of_kafka_python(rows: list[Row], compression: int) -> bytes:
    return _built(pytest.importorskip("kafka.record.default_records"), rows, compression)


def of_aiokafka(rows: list[Row], compression: int) -> bytes:
    return _built(pytest.importorskip("aiokafka.record.default_records"), rows, compression)


def _built(module: Any, rows: list[Row], compression: int) -> bytes:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for place, (time_ms, key, value, headers) in enumerate(rows):
        named = [(name.decode(), text) for name, text in headers]
        builder.append(place, time_ms, key, value, named)
    return bytes(builder.build())


@settings(max_examples=60)
@given(ROWS, st.sampled_from((NONE, LZ4)))
def test_what_is_written_other_clients_read(rows: list[Row], compression: int) -> None:
    batch = written(rows, compression)
    head = read_head(batch)
    check_checksum(batch, head)
    assert (head.base_offset, head.count, head.compression) == (7, len(rows), compression)
    assert head.max_timestamp_ms == max(time_ms for time_ms, *_ in rows)
    assert kafka_python(batch) == rows
    assert aiokafka(batch) == rows
    assert read_records(batch, bytes_max=LIMIT) == columns(rows)


@pytest.mark.parametrize("build", [of_aiokafka, of_kafka_python])
@settings(max_examples=60)
@given(ROWS, st.sampled_from(COMPRESSIONS))
def test_what_other_clients_write_is_read(
    build: Callable[[list[Row], int], bytes], rows: list[Row], compression: int
) -> None:
    if compression == SNAPPY and build is of_kafka_python:
        compression = NONE  # It needs a library that our tests do without.
    batch = build(rows, compression)
    check_checksum(batch, read_head(batch))
    assert read_records(batch, bytes_max=LIMIT) == columns(rows)


def test_bytes_of_a_batch() -> None:
    """As aiokafka 0.14 writes them, but for the leader epoch."""
    rows: list[Row] = [
        (1_700_000_000_000, b"k", b"v", [(b"h", b"\xff"), (b"h", None)]),
        (1_700_000_000_100, None, None, []),
        (1_699_999_999_999, b"", b"", []),
    ]
    batch = written(rows, base_offset=0)
    assert batch[HEAD_BYTES:] == bytes.fromhex(
        "1e 00 00 00 02 6b 02 76 04 02 68 02 ff 02 68 01"
        " 0e 00 c8 01 02 01 01 00"
        " 0c 00 01 04 00 00 00"
    )
    assert (
        batch[:HEAD_BYTES].hex()
        == (
            "0000000000000000"  # base offset
            "00000050"  # length
            "ffffffff"  # leader epoch
            "02"
            + f"{google_crc32c.value(batch[21:]):08x}"
            + "0000"  # attributes
            + "00000002"  # last offset delta
            + "0000018bcfe56800"
            + "0000018bcfe56864"
            + "ffffffffffffffff"
            + "ffff"
            + "ffffffff"
            + "00000003"
        )
    )


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8_191, 8_193, 16_384, 16_385, 20_000])
def test_offsets_of_each_width(count: int) -> None:
    batch = write_records([b""] * count, None, [5] * count, {}, base_offset=0)
    assert read_records(batch, bytes_max=LIMIT).values == [b""] * count


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, (1 << 31) - 1, (1 << 62), -(1 << 63), (1 << 63) - 1]
)
def test_timestamps_of_each_width(number: int) -> None:
    times_ms = [0, number]
    batch = write_records([b"", b""], None, times_ms, {}, base_offset=0)
    assert read_records(batch, bytes_max=LIMIT).timestamps_ms == times_ms


def test_log_append_time_holds_for_all_records() -> None:
    batch = bytearray(written([(5, None, b"a", []), (9, None, b"b", [])]))
    batch[22] |= LOG_APPEND_TIME
    assert read_records(bytes(batch), bytes_max=LIMIT).timestamps_ms == [9, 9]


# Batches that lie.


def of_records(records: bytes, count: int = 1, compression: int = NONE) -> bytes:
    return with_head(
        records,
        count=count,
        base_offset=0,
        first_timestamp_ms=0,
        max_timestamp_ms=0,
        compression=compression,
    )


RECORD = b"\x0c\0\0\0\1\1\0"
assert len(RECORD) == 7


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        (b"\x0c\0\0\0\1\1\1", 1, "less than no headers"),
        (b"\x0c\0\0\0\3\1\0", 1, "below -1"),
        (b"\x0c\0\0\0\1\3\0", 1, "below -1"),
        (b"\x0c\0\0\0\1\1\2", 1, "cut short"),
        (b"\x0e\0\0\0\1\1\0\0", 1, "not the size"),
        (b"\x0a\0\0\0\1\1\0", 1, "not the size"),
        (b"\x0c\0\0\2\1\1\0", 1, "the offset 0"),
        (RECORD + RECORD, 2, "the offset 1"),
        (RECORD + b"\0", 1, "bytes follow"),
        (RECORD, 2, "cannot hold 2 records"),
        (RECORD, (1 << 31) - 1, "cannot hold"),
        (b"\x0c\0\0\0\xfe\1\0", 1, "cut short"),
        (b"\x0c\0\0\0\x10\1\0", 1, "cut short"),
        (b"\xff" * 12, 1, "more than 64 bits"),
        (b"\x20\0" + b"\x80" * 11 + b"\0\0\1\1\0", 1, "more than 64 bits"),
        # A key of 2^62 bytes, and the largest count of headers.
        (b"\x20\0\0\0" + varint(1 << 62) + b"\1\0", 1, "cut short"),
        (b"\x20\0\0\0\1\1" + varint((1 << 63) - 1), 1, "cut short"),
        (b"\x12\0\0\0\1\1\2\1\0\0", 1, "no name"),
        (b"\x12\0\0\0\1\1\2\0\3\0", 1, "below -1"),
    ],
)
def test_records_that_lie(records: bytes, count: int, reason: str) -> None:
    read_records(of_records(RECORD), bytes_max=LIMIT)
    with pytest.raises(InvalidArgument, match=reason):
        read_records(of_records(records, count), bytes_max=LIMIT)


@pytest.mark.parametrize("attributes", [CONTROL, 1 << 6, 1 << 14, 5, 7])
def test_attributes_that_no_client_sends(attributes: int) -> None:
    with pytest.raises(InvalidArgument):
        read_records(of_records(RECORD, compression=attributes), bytes_max=LIMIT)


@settings(max_examples=60)
@given(ROWS, st.sampled_from((NONE, GZIP, LZ4, ZSTD)), st.data())
def test_damage_raises_nothing_else(rows: list[Row], compression: int, data: st.DataObject) -> None:
    batch = bytearray(of_kafka_python(rows, compression))
    kind = data.draw(st.sampled_from(("change", "cut", "grow")))
    if kind == "change":
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(HEAD_BYTES, len(batch) - 1))
            batch[place] = data.draw(st.integers(0, 255))
    elif kind == "cut":
        del batch[data.draw(st.integers(HEAD_BYTES, len(batch) - 1)) :]
    else:
        batch += data.draw(st.binary(min_size=1, max_size=20))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    try:
        opened = read_records(bytes(batch), bytes_max=LIMIT)
    except MagnetarError:
        return
    assert len(opened.values) == len(opened.timestamps_ms) == len(rows)


def snappy_of(data: bytes) -> bytes:
    """Literals of 60 bytes, without a copy."""
    size, rest = bytearray(), len(data)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    size.append(rest)
    pieces = [data[at : at + 60] for at in range(0, len(data), 60)]
    return bytes(size) + b"".join(bytes((len(one) - 1 << 2,)) + one for one in pieces)


def bomb_of_snappy(size: int) -> bytes:
    """A letter, and copies of it."""
    return snappy_of(bytes(size))[:4] + b"\0\0" + b"\xfe\1\0" * ((size - 1) // 64)


BOMBS: dict[int, Callable[[int], bytes]] = {
    GZIP: lambda size: gzip.compress(bytes(size)),
    SNAPPY: bomb_of_snappy,
    LZ4: lambda size: lz4.frame.compress(bytes(size)),
    ZSTD: lambda size: zstandard.compress(bytes(size)),
}


@pytest.mark.parametrize("compression", BOMBS)
def test_a_bomb_takes_no_more_memory_than_the_limit(compression: int) -> None:
    limit, size = 1 << 20, (16 << 20) + 1
    batch = of_records(BOMBS[compression](size), compression=compression)
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            read_records(batch, bytes_max=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * limit + 2 * len(batch)


def test_a_frame_of_zstandard_that_does_not_tell_its_size() -> None:
    one = zstandard.ZstdCompressor(write_content_size=False)
    batch = of_records(one.compress(bytes(8 << 20)), compression=ZSTD)
    with pytest.raises(MessageTooLarge):
        read_records(batch, bytes_max=LIMIT)
    batch = of_records(one.compress(RECORD), compression=ZSTD)
    assert read_records(batch, bytes_max=LIMIT).values == [None]


@pytest.mark.parametrize("compression", BOMBS)
def test_records_at_the_limit(compression: int) -> None:
    value = bytes(100_000)
    made = of_records_with(value, compression)
    size = 100_000 + len(RECORD) + 4
    assert read_records(made, bytes_max=size).values == [value]
    with pytest.raises(MessageTooLarge):
        read_records(made, bytes_max=size - 1)


def of_records_with(value: bytes, compression: int) -> bytes:
    plain = write_records([value], None, [0], {}, base_offset=0)[HEAD_BYTES:]
    compressed = {
        GZIP: gzip.compress,
        SNAPPY: snappy_of,
        LZ4: lz4.frame.compress,
        ZSTD: zstandard.compress,
    }[compression](plain)
    return of_records(compressed, compression=compression)


@pytest.mark.parametrize("compression", BOMBS)
def test_compressed_records_that_are_cut_short(compression: int) -> None:
    made = of_records_with(bytes(range(256)) * 40, compression)
    for cut in (1, 4, len(made) - HEAD_BYTES):
        short = bytearray(made[:-cut])
        short[8:12] = (len(short) - 12).to_bytes(4, "big")
        with pytest.raises(InvalidArgument):
            read_records(bytes(short), bytes_max=LIMIT)


@pytest.mark.parametrize("compression", [GZIP, LZ4])
def test_bytes_behind_compressed_records(compression: int) -> None:
    made = bytearray(of_records_with(b"value", compression) + b"more")
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    with pytest.raises(InvalidArgument):
        read_records(bytes(made), bytes_max=LIMIT)


# Snappy.


@given(st.binary(max_size=2_000), st.integers(1, 400))
def test_snappy_as_others_compress_it(data: bytes, repeated: int) -> None:
    cramjam = pytest.importorskip("cramjam")
    data *= repeated
    block = bytes(cramjam.snappy.compress_raw(data))
    assert snappy.decompress(block, len(data)) == data
    # As Java's clients do: blocks of 32 KiB, each with its length.
    stream = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    for at in range(0, len(data), 32 << 10):
        one = bytes(cramjam.snappy.compress_raw(data[at : at + (32 << 10)]))
        stream += len(one).to_bytes(4, "big") + one
    assert snappy.decompress(stream, len(data)) == data


def test_copies_of_snappy() -> None:
    """Eight bytes from four back, and six from one back, in the three forms of a copy."""
    for last in (b"\x09\1", b"\x16\1\0", b"\x17\1\0\0\0"):
        block = b"\x12\x0cabcd" + b"\x11\4" + last
        assert snappy.decompress(block, 100) == b"abcdabcdabcd" + b"d" * 6


@given(st.binary(max_size=60), st.booleans())
def test_snappy_that_is_damaged_raises_nothing_else(data: bytes, is_stream: bool) -> None:
    stream = b"\x82SNAPPY\0" + bytes(8) + len(data).to_bytes(4, "big") + data
    try:
        found = snappy.decompress(stream if is_stream else data, 1_000)
    except MagnetarError:
        return
    assert len(found) <= 1_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff\xff\1",
        b"\4\0",
        b"\1\4",
        b"\2\0a\x05\1\0",
        b"\4\0a\x01\2",
        b"\4\0a\x01\0",
        b"\2\0a",
        b"\5\0a\x0e\1",
        b"\1\0a\0b",
        b"\1\xf8\0\0\0\0a",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\5\1\0a",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\0",
    ],
)
def test_snappy_that_lies(data: bytes) -> None:
    with pytest.raises(MagnetarError):
        snappy.decompress(data, 1_000)


# Headers.


@given(HEADERS)
def test_headers_come_back_but_for_earlier_ones_of_the_same_name(headers: Headers) -> None:
    assert headers_of(properties_of(headers)) == list(dict(headers).items())


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.just("data:")))
def test_properties_come_back(properties: dict[str, str]) -> None:
    """But for texts in our base64, which are bytes, and then a text if they are UTF-8."""
    assert properties_of(headers_of(properties)) == properties


def test_how_headers_look_as_properties() -> None:
    headers: Headers = [
        (b"text", "tée".encode()),
        (b"bytes", b"\xff\0"),
        (b"none", None),
        (b"twice", b"1"),
        (b"looks like ours", b"data:;base64,AA=="),
        (b"looks like none", b"data:null"),
        (b"name\xff", b"x"),
        (b"twice", b"2"),
    ]
    assert properties_of(headers) == {
        "text": "tée",
        "bytes": f"{BASE64_PREFIX}/wA=",
        "none": NULL_TEXT,
        "twice": "2",
        "looks like ours": f"{BASE64_PREFIX}ZGF0YTo7YmFzZTY0LEFBPT0=",
        "looks like none": f"{BASE64_PREFIX}ZGF0YTpudWxs",
        "name\\xff": "x",
    }
    assert headers_of({"a": f"{BASE64_PREFIX}no base64"}) == [(b"a", b"data:;base64,no base64")]
