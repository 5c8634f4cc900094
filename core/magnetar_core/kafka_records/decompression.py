"""Opens the compressed records of a batch, within a limit that holds whatever they declare."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from magnetar_core.errors import InvalidArgument, MessageTooLarge
from magnetar_core.kafka_records import snappy
from magnetar_core.record_batch import GZIP, LZ4, SNAPPY, ZSTD

# How much is opened at once, so that small records take little memory.
_PIECE_BYTES = 256 << 10
# With the header of gzip.
_GZIP_WINDOW_BITS = 31
# What Zstandard's levels up to 20 need; ultra levels may declare a window of 128 MiB.
_ZSTD_WINDOW_BYTES_MAX = 32 << 20


def opened(stored: bytes, compression: int, bytes_max: int) -> bytes:
    """Return the compressed records of a batch as they were.

    Args:
        compression: GZIP, SNAPPY, LZ4 or ZSTD.

    Raises:
        MessageTooLarge: they exceed bytes_max.
        InvalidArgument: they cannot be decompressed.
    """
    opener = _OPENERS.get(compression)
    if opener is None:
        raise InvalidArgument(f"a RecordBatch has the unknown compression {compression}")
    try:
        records = opener(stored, bytes_max)
    except (zlib.error, zstandard.ZstdError, RuntimeError, ValueError, EOFError) as error:
        raise InvalidArgument(f"a RecordBatch cannot be decompressed: {error}") from error
    if len(records) > bytes_max:
        raise MessageTooLarge(
            f"a RecordBatch of more than {bytes_max} bytes when it is opened",
            body_bytes_max=bytes_max,
        )
    return records


def _gzip(stored: bytes, bytes_max: int) -> bytes:
    one = zlib.decompressobj(_GZIP_WINDOW_BITS)
    pieces = []
    size = 0
    rest = stored
    while not one.eof and size <= bytes_max:
        piece = one.decompress(rest, min(_PIECE_BYTES, bytes_max + 1 - size))
        rest = one.unconsumed_tail
        if not piece and not rest and not one.eof:
            raise EOFError("it is cut short")
        pieces.append(piece)
        size += len(piece)
    if one.unused_data:
        raise ValueError("bytes follow its end")
    return b"".join(pieces)


def _lz4(stored: bytes, bytes_max: int) -> bytes:
    one = lz4.frame.LZ4FrameDecompressor()
    pieces = []
    size = 0
    rest = stored
    while not one.eof and size <= bytes_max:
        piece = one.decompress(rest, max_length=min(_PIECE_BYTES, bytes_max + 1 - size))
        rest = b""
        if not piece and one.needs_input:
            raise EOFError("it is cut short")
        pieces.append(piece)
        size += len(piece)
    if one.eof and one.unused_data:
        raise ValueError("bytes follow its end")
    return b"".join(pieces)


def _zstd(stored: bytes, bytes_max: int) -> bytes:
    one = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    pieces = []
    size = 0
    with one.stream_reader(stored) as reader:
        while size <= bytes_max and (piece := reader.read(min(_PIECE_BYTES, bytes_max + 1 - size))):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)


_OPENERS: dict[int, Callable[[bytes, int], bytes]] = {
    GZIP: _gzip,
    SNAPPY: snappy.decompress,
    LZ4: _lz4,
    ZSTD: _zstd,
}
