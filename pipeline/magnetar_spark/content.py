"""Fingerprints of batches, so that a repeated batch with other rows is noticed. Pure.

A fingerprint has the count and size of the rows, and a checksum that depends neither on their order
nor on the division into tasks: a shuffle changes both from run to run. Everything that is sent
counts: topic, given partition, key, value, event time, headers. There is no loop over messages,
except for those of many kilobytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from magnetar_core.batch import NO_EVENT_TIME_MS

Hashes = npt.NDArray[np.uint64]

# Rows are hashed together, as many as stay within a processor's cache.
_CHUNK_BYTES = 64 << 10
# From here on a digest of a row by itself is cheaper.
_LONG_BYTES = 4 << 10

_HASH_BYTES = 8
_MASK = (1 << 64) - 1
# Odd numbers without a pattern: a polynomial's point, and what columns and mixing multiply by.
_POINT = 0x9E3779B97F4A7C15
_COLUMN = np.uint64(0xD1342543DE82EF95)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_MIX_SHIFT = np.uint64(33)
# What stands for the hash of a value that is absent, and of a key that is empty: without them, for
# an empty value and for no key.
_NO_VALUE = np.uint64(0xA0761D6478BD642F)
_EMPTY_KEY = np.uint64(0xE7037ED1A0B428DB)


@dataclass(frozen=True)
class Content:
    """The fingerprint of some rows. Fingerprints of several tasks can be added.

    Attributes:
        bytes: the size of keys, values and headers.
        checksum: the sum of the hashes of all rows, 64 bits.
    """

    rows: int = 0
    bytes: int = 0
    checksum: int = 0

    def __add__(self, other: Content) -> Content:
        return Content(
            self.rows + other.rows,
            self.bytes + other.bytes,
            (self.checksum + other.checksum) & _MASK,
        )

    def __str__(self) -> str:
        """Return the text that is stored with the committed sequence."""
        return f"rows={self.rows} bytes={self.bytes} checksum={self.checksum:016x}"


def content_of(
    topic: str,
    values: pa.Array,
    keys: pa.Array | None,
    partitions: pa.Array | None,
    times_ms: pa.Array | None,
    properties: pa.Array | None,
    *,
    absent_values: npt.NDArray[np.bool_] | None = None,
    empty_keys: npt.NDArray[np.bool_] | None = None,
) -> Content:
    """Return the fingerprint of rows of a topic. A missing column counts as a column of nulls.

    Args:
        topic: the topic's name.
        values: binary, without nulls.
        keys: binary, without nulls.
        partitions: the partitions that rows give, and null elsewhere.
        times_ms: the event times in milliseconds; NO_EVENT_TIME_MS: none.
        properties: binary, without nulls.
        absent_values: the rows that have no value; they have an empty one in `values`.
        empty_keys: the rows that have an empty key; others with an empty one have none.
    """
    count = len(values)
    state = np.full(count, _digest(topic.encode()), dtype=np.uint64)
    size = 0
    for column, which, instead in (
        (values, absent_values, _NO_VALUE),
        (keys, empty_keys, _EMPTY_KEY),
        (properties, None, _NO_VALUE),
    ):
        found = _no_bytes() if column is None else hashes(column)
        if which is not None:
            found = np.where(which, instead, found)
        state = _mixed(state * _COLUMN + found)
        size += 0 if column is None else _byte_count(column)
    for numbers, absent in ((partitions, -1), (times_ms, NO_EVENT_TIME_MS)):
        state = _mixed(state * _COLUMN + _numbers(numbers, absent))
    return Content(count, size, int(state.sum(dtype=np.uint64)))


def _numbers(numbers: pa.Array | None, absent: int) -> Hashes | np.uint64:
    if numbers is None:
        return np.uint64(absent & _MASK)
    filled = numbers.fill_null(absent).to_numpy(zero_copy_only=False)
    found: Hashes = filled.astype(np.int64).view(np.uint64)
    return found


def hashes(array: pa.Array) -> Hashes:
    """Return the hash of each entry of a binary array, whatever bytes lie beside it.

    The hash of a short entry is a polynomial over its bytes; the hashes of all short entries are
    made at once from sums over the array. The hash of a long entry is a digest.
    """
    offsets = binary_offsets(array).astype(np.int64)
    lengths = np.diff(offsets)
    data = binary_data(array)
    found = np.zeros(len(array), dtype=np.uint64)
    at = 0
    while at < len(array):
        end = int(np.searchsorted(offsets, offsets[at] + _CHUNK_BYTES, side="right")) - 1
        end = max(end, at + 1)
        if lengths[at:end].min() < _LONG_BYTES:
            piece = data[offsets[at] : offsets[end]]
            found[at:end] = _polynomials(piece, offsets[at:end] - offsets[at], lengths[at:end])
        at = end
    found = _mixed(found + lengths.view(np.uint64) * _MIX_1)
    for place in np.flatnonzero(lengths >= _LONG_BYTES).tolist():
        found[place] = _digest(data[offsets[place] : offsets[place + 1]].data)
    return found


def _polynomials(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: Hashes
) -> Hashes:
    sums = np.zeros(len(starts), dtype=np.uint64)
    some = lengths > 0
    if some.any():
        powers, inverses = _powers()
        # A sum ends where the next one begins, and what is empty has no bytes to begin with.
        begins = starts[some]
        sums[some] = np.add.reduceat(data * powers[: len(data)], begins) * inverses[begins]
    return sums


@cache
def _powers() -> tuple[Hashes, Hashes]:
    """Return powers of the point and of its inverse, modulo 2^64."""
    both = []
    for base in (_POINT, pow(_POINT, -1, 1 << 64)):
        powers = np.full(_CHUNK_BYTES + _LONG_BYTES, base, dtype=np.uint64)
        powers[0] = 1
        both.append(np.cumprod(powers, dtype=np.uint64))
    return both[0], both[1]


@cache
def _no_bytes() -> np.uint64:
    return np.uint64(hashes(pa.array([b""], type=pa.binary()))[0])


def _mixed(state: Hashes) -> Hashes:
    """Every bit depends on every other one: sums of hashes of alike rows do not cancel out."""
    state = (state ^ (state >> _MIX_SHIFT)) * _MIX_1
    state = (state ^ (state >> _MIX_SHIFT)) * _MIX_2
    return state ^ (state >> _MIX_SHIFT)


def _digest(data: bytes | memoryview) -> int:
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES).digest(), "little")


def _byte_count(array: pa.Array) -> int:
    offsets = binary_offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def binary_offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the offsets of a binary array, one more than it has entries."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, dtype=np.int32)
    whole = np.frombuffer(buffer, dtype=np.int32)
    found: npt.NDArray[np.int32] = whole[array.offset : array.offset + len(array) + 1]
    return found


def binary_data(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of a binary array, to which its offsets refer."""
    buffer = array.buffers()[2]
    return np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)
