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
        st.none() | st.binary(max_size=64),
        st.none() | st.binary(max_size=16),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


# Value, key, event time, properties.
Message = tuple[bytes | None, bytes | None, int, dict[str, str]]


@given(messages, codecs, st.booleans(), st.booleans(), st.booleans())
def test_what_goes_in_comes_out(
    rows: list[Message],
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
    assert columns.values_or_none() == values
    assert [columns.row(place)[:2] for place in range(columns.count)] == [
        (key if with_keys else None, value) for key, value in zip(keys, values, strict=True)
    ]
    for place, (value, key) in enumerate(zip(values, keys, strict=True)):
        one = batch.decode(columns.single(place))
        assert one.values_or_none() == [value]
        assert (one.keys() or [None]) == [key if with_keys else None]
    assert columns.keys() == (keys if with_keys else None)
    assert columns.properties() == (properties if with_properties else None)
    stored_times = columns.event_times_ms
    assert (list(stored_times) if stored_times is not None else None) == (
        times if with_times else None
    )


@given(messages, codecs)
def test_the_header_tells_what_a_broker_needs(rows: list[Message], codec: Codec) -> None:
    encoded = batch.encode([row[0] for row in rows], [rows[0][1]] * len(rows), codec=codec)
    header = batch.read_header(encoded)
    assert header.count == len(rows)
    assert header.codec is codec
    assert header.stored_bytes == len(encoded) - batch.OVERHEAD_BYTES


def test_mixed_keys_have_no_hash() -> None:
    assert batch.read_header(batch.encode([b"", b""], [b"a", b"b"])).key_hash == 0
    assert batch.read_header(batch.encode([b"", b""], [b"a", b"a"])).key_hash != 0
    assert batch.read_header(batch.encode([b""] * 3, [b"a", b"b", b"a"])).key_hash == 0
    assert batch.read_header(batch.encode([b""] * 3, [b"a", None, b"a"])).key_hash == 0


def test_columns_must_be_of_one_length() -> None:
    with pytest.raises(InvalidArgument):
        batch.encode([])
    with pytest.raises(InvalidArgument):
        batch.encode([b"a", b"b"], [b"key"])


@given(st.data(), messages, codecs)
def test_one_changed_byte_is_noticed(
    data: st.DataObject, rows: list[Message], codec: Codec
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
    data: st.DataObject, rows: list[Message], codec: Codec
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
        columns.values_or_none()
        columns.keys()
        columns.row(columns.count - 1)
    except MagnetarError:
        pass


def test_bytes_of_a_batch_with_tombstones_and_empty_keys() -> None:
    """Bits of validity as Arrow has them, behind everything else."""
    plain = batch.encode([b"a", b"", b"c"], [b"k", None, b"l"])
    encoded = batch.encode([b"a", None, b"c"], [b"k", b"", None])
    body = encoded[batch.HEADER.size : -batch.CHECKSUM.size]
    assert body == bytes.fromhex(
        "19000000"  # keys, bits of values, bits of keys
        "00000000 01000000 01000000 02000000 6163"  # a, none, c
        "00000000 01000000 01000000 01000000 6b"  # k, an empty one, none
        "05 03"
    )
    # Nothing else changes, and nothing of a batch that needs no bits.
    assert plain[batch.HEADER.size] == batch.HAS_KEYS
    assert batch.encode([b"a"], [None]) == batch.encode_columns(
        1, (array("i", [0, 1]).tobytes(), b"a"), (bytes(8), b"")
    )


def with_body(body: bytes, count: int) -> bytes:
    header = batch.HEADER.pack(
        batch.MAGIC, batch.VERSION, Codec.NONE, count, len(body), len(body), 0
    )
    checksum = google_crc32c.value(header + body)
    return header + body + batch.CHECKSUM.pack(checksum)


@pytest.mark.parametrize(
    ("flags", "bits"),
    [
        (batch.HAS_VALUE_BITS, b"\x02"),  # The first has a byte.
        (batch.HAS_VALUE_BITS, b"\x07"),  # Of three messages.
        (batch.HAS_VALUE_BITS, b""),
        (batch.HAS_VALUE_BITS, b"\x01\x00"),
        (batch.HAS_KEY_BITS, b"\x03"),  # There are no keys.
        (32, b""),
        (1 << 31, b"\x03"),
    ],
)
def test_bits_that_do_not_fit_are_damage(flags: int, bits: bytes) -> None:
    columns = array("i", [0, 1, 1]).tobytes() + b"x"
    sound = with_body(batch.FLAGS.pack(batch.HAS_VALUE_BITS) + columns + b"\x01", 2)
    assert batch.decode(sound).values_or_none() == [b"x", None]
    with pytest.raises(InvalidArgument, match="do not fit"):
        batch.decode(with_body(batch.FLAGS.pack(flags) + columns + bits, 2))


def test_the_value_of_a_tombstone_is_not_taken_for_an_empty_one() -> None:
    columns = batch.decode(batch.encode([b"", None], [b"k", b"k"]))
    with pytest.raises(InvalidArgument, match="message 1 of the batch has no value"):
        columns.values()
    assert columns.values_or_none() == [b"", None]


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_places_of_what_is_absent(present: list[bool]) -> None:
    encoded = batch.encode([b"" if one else None for one in present])
    bits = batch.decode(encoded).value_bits
    absent = [place for place, one in enumerate(present) if not one]
    assert (bits is None) == (not absent)
    if bits is not None:
        assert batch.absent_places(bits, len(present)) == absent
        with pytest.raises(ValueError, match="left over"):
            batch.absent_places(bytes(bits) + b"\x01", len(present))


def test_messages_without_a_key_share_a_hash_with_those_with_an_empty_one() -> None:
    assert batch.read_header(batch.encode([b"", b""], [None, b""])).key_hash == 0
    assert batch.read_header(batch.encode([b"", b""], [None, b"a"])).key_hash == 0


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
