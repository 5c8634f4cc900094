"""Messages in pieces: a large field is copied once, to where its frame is written. Pure.

protobuf copies bytes when they are set, when their message is put into another one, and twice when
that one is serialized. With payloads of a megabyte these copies cost more than everything else. A
message in pieces has its serialization's parts in order instead: a field with a length is its tag,
its length and its bytes, wherever it stands among the others.
Source: the encoding of Protocol Buffers, Length-Delimited Records, and Message Structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

# The wire type of fields with a length: bytes, texts and messages.
_WITH_LENGTH = 2
_TYPES_WITH_LENGTH = (
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_MESSAGE,
)

# Below this, protobuf's copies cost less than pieces do.
PAYLOAD_BYTES_MIN: Final = 16 << 10


MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)

# Beginnings of fields that are kept. Small messages have the same few sizes again and again.
KNOWN_STARTS_MAX: Final = 1_000


class Spliced(NamedTuple, Generic[MessageT_co]):
    """A message in pieces.

    Attributes:
        kind: the class of the message.
        pieces: joined, they are the serialization of the whole.
        byte_count: of all pieces together.
    """

    kind: type[MessageT_co]
    pieces: Sequence[bytes]
    byte_count: int

    def to_bytes(self) -> bytes:
        """Return the serialization."""
        return b"".join(self.pieces)


Body: TypeAlias = Message | Spliced[Message]


def with_payload(message: MessageT, field: str, payload: bytes) -> MessageT | Spliced[MessageT]:
    """Return a message with a payload in one of its fields.

    Args:
        message: all other fields; the payload is put into it if that costs less.
        field: the name of the field.
        payload: of any size.
    """
    if len(payload) >= PAYLOAD_BYTES_MIN:
        return spliced(message, field, (payload,))
    setattr(message, field, payload)
    return message


def with_messages(
    message: MessageT, field: str, bodies: Sequence[Body]
) -> MessageT | Spliced[MessageT]:
    """Return a message with others in one of its fields, which is repeated.

    Args:
        message: all other fields; the others are put into it if that costs less.
        field: the name of the field.
        bodies: the others, in pieces or not.
    """
    if any(isinstance(body, Spliced) for body in bodies):
        return spliced(
            message,
            field,
            (body if isinstance(body, Spliced) else body.SerializeToString() for body in bodies),
        )
    places = getattr(message, field)
    for one in bodies:
        places.add().CopyFrom(one)
    return message


def spliced(
    message: MessageT, field: str, contents: Iterable[bytes | Spliced[Message]]
) -> Spliced[MessageT]:
    """Return a message in pieces.

    Args:
        message: all other fields.
        field: the name of the field, of bytes, texts or messages. A field that is not repeated is
            not set in the message.
        contents: what the field gets, messages serialized: one, unless it is repeated.
    """
    tag = _tag(message.DESCRIPTOR, field)
    head = message.SerializeToString(deterministic=True)
    pieces = [head]
    byte_count = len(head)
    for content in contents:
        if isinstance(content, Spliced):
            size = content.byte_count
            before = tag + varint(size)
            pieces.append(before)
            pieces += content.pieces
        else:
            size = len(content)
            before = tag + varint(size)
            pieces += (before, content)
        byte_count += len(before) + size
    return Spliced(type(message), pieces, byte_count)


def joined(kind: type[MessageT], *pieces: bytes) -> Spliced[MessageT]:
    """Return a message whose serialization is these pieces in a row.

    Pieces that many messages have in common are made once. In a row, serialized messages are the
    message with the fields of all of them; of a field that is not repeated, the last one counts.
    Source: the encoding of Protocol Buffers, Last One Wins.
    """
    return Spliced(kind, pieces, sum(map(len, pieces)))


@lru_cache(maxsize=KNOWN_STARTS_MAX)
def field_start(kind: type[Message], field: str, size: int) -> bytes:
    """Return the tag and the length that precede the content of a field.

    Args:
        kind: the class of the message.
        size: how many bytes the content has.
    """
    return _tag(kind.DESCRIPTOR, field) + varint(size)


def serialized(body: Body) -> bytes:
    """Return the bytes of a message."""
    return body.to_bytes() if isinstance(body, Spliced) else body.SerializeToString()


def kind_of(body: Body) -> type[Message]:
    """Return the class of a message."""
    return body.kind if isinstance(body, Spliced) else type(body)


def whole(body: Body) -> Message:
    """Return a message with all of its fields, to read them."""
    return body.kind.FromString(body.to_bytes()) if isinstance(body, Spliced) else body


def byte_count_of(body: Body) -> int:
    """Return how many bytes a message or a row takes when it is serialized."""
    return body.byte_count if isinstance(body, tuple) else body.ByteSize()


# Seven bits of a number: its highest, and those before others.
_LAST: Final = [bytes((bits,)) for bits in range(0x80)]
_MORE: Final = [bytes((bits | 0x80,)) for bits in range(0x80)]


def varint(number: int) -> bytes:
    """Return a number as lengths and tags are written: seven bits a byte, the lowest first."""
    # Nearly all are so small, and the loop takes several times as long.
    if number <= 0x7F:
        return _LAST[number]
    if number <= 0x3FFF:
        return _MORE[number & 0x7F] + _LAST[number >> 7]
    if number <= 0x1F_FFFF:
        return _MORE[number & 0x7F] + _MORE[number >> 7 & 0x7F] + _LAST[number >> 14]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@cache
def _tag(kind: Descriptor, field: str) -> bytes:
    descriptor = kind.fields_by_name[field]
    if descriptor.type not in _TYPES_WITH_LENGTH:
        raise TypeError(f"{kind.full_name}.{field} has no length")
    return varint(descriptor.number << 3 | _WITH_LENGTH)
