"""The columnar batch: what goes in comes out, and damage is noticed rather than believed."""

from array import array

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core import batch
from magnetar_core.batch import Codec, Part
from magnetar_core.errors import (
    ChecksumMismatch,
    InvalidArgument,
    MagnetarError,
    MessageTooLarge,
)

codecs = st.sampled_from(list(Codec))
messages = st.lists(
    st.tuples(
        st.binary(max_size=64),
        st.binary(max_size=16),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(messages, codecs, st.booleans(), st.booleans(), st.booleans())
def test_what_goes_in_comes_out(
    rows: list[tuple[bytes, bytes, int, dict[str, str]]],
    codec: Codec,
    with_keys: bool,
    with_times: bool,
    with_properties: bool,
) -> None:
    values, keys, times, properties = (list(column) for column in zip(*rows, strict=True))
    encoded = batch.encode(
        values,
        keys if with_keys else None,
        event_times_ms=times if with_times else None,
        properties=list(map(batch.encoded_properties, properties)) if with_properties else None,
        codec=codec,
    )
    columns = batch.decode(encoded)
    assert columns.count == len(rows)
    assert columns.values() == values
    assert columns.keys() == (keys if with_keys else None)
    assert columns.properties() == (properties if with_properties else None)
    stored_times = columns.event_times_ms
    assert (list(stored_times) if stored_times is not None else None) == (
        times if with_times else None
    )


@given(messages, codecs)
def test_the_header_tells_what_a_broker_needs(
    rows: list[tuple[bytes, bytes, int, dict[str, str]]], codec: Codec
) -> None:
    encoded = batch.encode([row[0] for row in rows], [rows[0][1]] * len(rows), codec=codec)
    header = batch.read_header(encoded)
    assert header.count == len(rows)
    assert header.codec is codec
    assert header.stored_bytes == len(encoded) - batch.OVERHEAD_BYTES


def test_mixed_keys_have_no_hash() -> None:
    assert batch.read_header(batch.encode([b"", b""], [b"a", b"b"])).key_hash == 0
    assert batch.read_header(batch.encode([b"", b""], [b"a", b"a"])).key_hash != 0


def test_columns_must_be_of_one_length() -> None:
    with pytest.raises(InvalidArgument):
        batch.encode([])
    with pytest.raises(InvalidArgument):
        batch.encode([b"a", b"b"], [b"key"])


@given(st.data(), messages, codecs)
def test_one_changed_byte_is_noticed(
    data: st.DataObject, rows: list[tuple[bytes, bytes, int, dict[str, str]]], codec: Codec
) -> None:
    encoded = bytearray(batch.encode([row[0] for row in rows], codec=codec))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((ChecksumMismatch, InvalidArgument)):
        batch.read_header(bytes(encoded))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MagnetarError):
        batch.decode(data)


@given(st.data(), messages, codecs)
def test_damage_under_a_right_checksum_raises_nothing_else(
    data: st.DataObject, rows: list[tuple[bytes, bytes, int, dict[str, str]]], codec: Codec
) -> None:
    """A client may build what it likes and sign it; readers get an error, never a crash."""
    values, keys, times, properties = (list(column) for column in zip(*rows, strict=True))
    encoded = bytearray(
        batch.encode(
            values,
            keys,
            event_times_ms=times,
            properties=list(map(batch.encoded_properties, properties)),
            codec=codec,
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(4, len(encoded) - batch.CHECKSUM.size - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    try:
        columns = batch.decode(bytes(encoded), verify=False)
        columns.values()
        columns.keys()
    except MagnetarError:
        pass


def test_properties_that_cannot_be_read_are_an_error_of_ours() -> None:
    encoded = batch.encode([b"value"], properties=[b'{"name": "text"}'])
    damaged = encoded.replace(b'{"name": "text"}', b'{"name": \xff text}')
    with pytest.raises(MagnetarError):
        batch.decode(damaged, verify=False).properties()


def test_offsets_that_fall_are_refused() -> None:
    encoded = batch.encode([b"aa", b"bb"])
    rising, falling = array("i", [0, 2, 4]), array("i", [0, 9, 4])
    damaged = encoded.replace(rising.tobytes(), falling.tobytes())
    assert damaged != encoded
    with pytest.raises(MagnetarError):
        batch.decode(damaged, verify=False)


@given(st.binary(min_size=1, max_size=3_000), st.integers(1, 1_000), codecs)
def test_parts_are_pieces_of_one_message(value: bytes, piece_bytes_max: int, codec: Codec) -> None:
    whole = batch.encode([value], codec=codec)
    parts = batch.split(whole, piece_bytes_max)
    assert len(parts) >= 2
    kinds = [batch.part_of(part) for part in parts]
    assert kinds == [Part.FIRST, *[Part.MIDDLE] * (len(parts) - 2), Part.LAST]
    assert all(len(batch.piece_of(part)) <= piece_bytes_max for part in parts)
    assert all(batch.read_header(part).count == 1 for part in parts)
    assert batch.part_of(whole) is Part.WHOLE
    assert batch.decode(batch.join(parts)).values() == [value]


def test_a_part_is_not_taken_for_a_message() -> None:
    first, second = batch.split(batch.encode([b"x"]), 1_000)
    with pytest.raises(InvalidArgument):
        batch.decode(first)
    damaged = bytearray(second)
    damaged[-6] ^= 1
    with pytest.raises(ChecksumMismatch):
        batch.join([first, bytes(damaged)])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_limit_of_messages_holds_for_every_codec(codec: Codec) -> None:
    header = batch.read_header(batch.encode([b"value"] * 4, codec=codec))
    batch.check_claims(header, body_bytes_max=1 << 20, messages_max=4)
    with pytest.raises(MessageTooLarge, match="a batch of 4 messages exceeds 3"):
        batch.check_claims(header, body_bytes_max=1 << 20, messages_max=3)


def test_nothing_may_lie_behind_a_batch() -> None:
    """Whoever made it longer made its checksum, too."""
    whole = batch.encode([b"value"])
    longer = whole[: -batch.CHECKSUM.size] + b"more"
    checksum = batch.CHECKSUM.pack(google_crc32c.value(longer))
    with pytest.raises(InvalidArgument, match="does not fit its size"):
        batch.read_header(longer + checksum)
