"""Snappy, which Kafka's clients use and no dependency brings: decompression.

What is decompressed is never larger than its beginning declares, which a limit bounds. Each element
costs a slice: some 25 MB/s for text, which is for those who keep this compression.
Source: google/snappy, format_description.txt; xerial/snappy-java, SnappyOutputStream.
"""

from __future__ import annotations

from magnetar_core.errors import InvalidArgument, MessageTooLarge

# Java's clients write a stream of blocks: magic, two versions, then for each block its length.
_STREAM_MAGIC = b"\x82SNAPPY\x00"
_STREAM_HEAD_BYTES = 16
_LENGTH_BYTES = 4
_VARINT_BYTES_MAX = 5
_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
# Literals up to this length have it in their tag.
_SHORT_MAX = 60


def decompress(data: bytes, bytes_max: int) -> bytes:
    """Return the data of one block, or of Java's stream of blocks.

    Raises:
        MessageTooLarge: it declares to be larger than bytes_max.
        InvalidArgument: it is damaged.
    """
    try:
        if not data.startswith(_STREAM_MAGIC):
            return bytes(_block(data, bytes_max))
        out = bytearray()
        at = _STREAM_HEAD_BYTES
        while at < len(data):
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(data[at:start], "big")
            if at > len(data) or at == start:
                raise InvalidArgument("a block of Snappy is cut short")
            out += _block(data[start:at], bytes_max - len(out))
        return bytes(out)
    except IndexError as error:
        raise InvalidArgument("Snappy is cut short") from error


def _block(data: bytes, bytes_max: int) -> bytearray:
    size, at = _declared_size(data)
    if size > bytes_max:
        raise MessageTooLarge(
            f"records exceed the limit by {size - bytes_max} bytes when they are opened",
            body_bytes=size,
        )
    out = bytearray()
    end = len(data)
    while at < end:
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == _LITERAL:
            length = (tag >> 2) + 1
            if length > _SHORT_MAX:
                width = length - _SHORT_MAX
                length = int.from_bytes(data[at : at + width], "little") + 1
                at += width
            if at + length > end:
                raise InvalidArgument("a literal of Snappy is cut short")
            out += data[at : at + length]
            at += length
        else:
            if kind == _COPY_1:
                length = (tag >> 2 & 7) + 4
                distance = tag >> 5 << 8 | data[at]
                at += 1
            else:
                length = (tag >> 2) + 1
                width = 2 if kind == _COPY_2 else 4
                distance = int.from_bytes(data[at : at + width], "little")
                at += width
                if at > end:
                    raise InvalidArgument("a copy of Snappy is cut short")
            start = len(out) - distance
            if start < 0 or not distance:
                raise InvalidArgument("a copy of Snappy begins outside")
            if distance >= length:
                out += out[start : start + length]
            else:
                # What is copied repeats itself.
                out += (out[start:] * (length // distance + 1))[:length]
        if len(out) > size:
            break
    if len(out) != size:
        raise InvalidArgument("a block of Snappy has not the size that it declares")
    return out


def _declared_size(data: bytes) -> tuple[int, int]:
    size = 0
    for at in range(_VARINT_BYTES_MAX):
        byte = data[at]
        size |= (byte & 127) << 7 * at
        if byte < 128:
            return size, at + 1
    raise InvalidArgument("Snappy declares no size")
