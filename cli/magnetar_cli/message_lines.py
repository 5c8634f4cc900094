"""Messages as lines: what `magnetar consume` prints and `magnetar produce` reads.

The lines are values, keys and values with a separator, or JSON. A line of JSON loses nothing of a
message: what is not UTF-8 is in base64, in `key_base64` and `value_base64`, and the value of a
message without one is null. The other lines do not tell what is absent from what is empty.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from magnetar import Message, MessageColumns, Producer, Transaction, UncommittedMessage

# How many characters a byte may take in JSON, as in \u001f.
JSON_EXPANSION_MAX = 6
# What the log says of a message that it has; a message that is sent again gets its own.
_OF_THE_LOG = frozenset(
    (
        *("topic", "partition", "offset", "message_id"),
        *("append_time_ms", "txn_id", "redelivery_count"),
    )
)
_OF_THE_MESSAGE = ("key", "key_base64", "value", "value_base64", "properties", "event_time_ms")
# As batches store it: int64, whose lowest number stands for none.
_EVENT_TIMES_MS = range(-(1 << 63) + 1, 1 << 63)


class BadLine(Exception):
    """A line of the input is not a message. The text names the line by its number, from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number:,} {reason}")


class LineSplitter:
    """Divides bytes into lines, however they arrive. The work is linear in the number of bytes.

    Args:
        line_bytes_max: a longer line is refused, before all of it is in memory.
    """

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()
        self._count = 0

    @property
    def rest_bytes(self) -> int:
        """Bytes of the line that is not complete yet."""
        return len(self._rest)

    def split(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now. Empty data means the end of the input.

        Args:
            data: no more than line_bytes_max.
        Raises:
            BadLine: the line that was not complete before is too long.
        """
        first, *lines = data.split(b"\n")
        self._rest += first
        if len(self._rest) > self._line_bytes_max:
            limit = f"{self._line_bytes_max:,} bytes"
            raise BadLine(self._count + 1, f"is longer than {limit}: its message is too large")
        if lines or (self._rest and not data):
            lines.insert(0, bytes(self._rest))
            self._rest = bytearray(lines.pop() if data else b"")
        self._count += len(lines)
        return lines


class Lines(Protocol):
    """Messages that were read from consecutive lines.

    Attributes:
        bad: the line behind them that is not a message; None: there is none.
    """

    bad: BadLine | None

    def __len__(self) -> int: ...

    @property
    def byte_count(self) -> int:
        """Bytes of all values."""
        ...

    def part(self, start: int, stop: int) -> Lines:
        """Return some of the messages."""
        ...

    async def send(self, producer: Producer, txn: Transaction | None) -> None:
        """Enqueue the messages.

        Raises:
            BadLine: a producer refuses a message. Those before it are enqueued.
        """
        ...


# Takes lines and the number of the first.
Decoder = Callable[[Sequence[bytes], int], Lines]


@dataclass(slots=True)
class ValueLines:
    """Values, and keys with a separator."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    bad: BadLine | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def byte_count(self) -> int:
        """Bytes of all values."""
        return sum(map(len, self.values))

    def part(self, start: int, stop: int) -> ValueLines:
        """Return some of the messages."""
        keys = None if self.keys is None else self.keys[start:stop]
        return ValueLines(self.values[start:stop], keys)

    async def send(self, producer: Producer, txn: Transaction | None) -> None:
        """Enqueue the messages."""
        await producer.send_many(self.values, self.keys, txn=txn)


def decode_values(lines: Sequence[bytes], _: int) -> ValueLines:
    """Take each line as a value."""
    return ValueLines(lines)


def decoder_of_keys(separator: bytes) -> Decoder:
    """Return a function that parts each line at the first separator, into key and value.

    Without a key before the separator the message has none.
    """

    def decode(lines: Sequence[bytes], number: int) -> ValueLines:
        values: list[bytes] = []
        keys: list[bytes | None] = []
        for line in lines:
            key, found, value = line.partition(separator)
            if not found:
                shown = separator.decode(errors="backslashreplace")
                bad = BadLine(
                    number + len(values),
                    f"has no {shown!r}; correct it, or name another --key-separator",
                )
                return ValueLines(values, keys, bad)
            keys.append(key or None)
            values.append(value)
        return ValueLines(values, keys)

    return decode


class JsonMessage(NamedTuple):
    """A message that a line of JSON describes."""

    line: int
    value: bytes | None
    key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int | None


@dataclass(slots=True)
class JsonLines:
    """Messages with all that belongs to them."""

    messages: list[JsonMessage] = field(default_factory=list)
    bad: BadLine | None = None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def byte_count(self) -> int:
        """Bytes of all values."""
        return sum(len(one.value or b"") for one in self.messages)

    def part(self, start: int, stop: int) -> JsonLines:
        """Return some of the messages."""
        return JsonLines(self.messages[start:stop])

    async def send(self, producer: Producer, txn: Transaction | None) -> None:
        """Enqueue the messages.

        Raises:
            BadLine: a message is refused. Those before it are enqueued.
        """
        from magnetar_core.errors import InvalidArgument, MessageTooLarge

        for one in self.messages:
            try:
                await producer.enqueue(
                    one.value,
                    one.key,
                    properties=one.properties,
                    event_time_ms=one.event_time_ms,
                    txn=txn,
                )
            except (InvalidArgument, MessageTooLarge) as error:
                raise BadLine(one.line, f"is refused: {error}") from error


def decode_json(lines: Sequence[bytes], number: int) -> JsonLines:
    """Read lines of JSON as `encode_json` writes them. Empty lines are left out."""
    found = JsonLines()
    for at, line in enumerate(lines, number):
        # A file may begin with a byte order mark.
        text = line.removeprefix(b"\xef\xbb\xbf") if at == 1 else line
        if not text.strip():
            continue
        try:
            found.messages.append(_message_of(text, at))
        except ValueError as error:
            found.bad = BadLine(at, f"is not a message: {error}")
            break
    return found


def _message_of(line: bytes, number: int) -> JsonMessage:
    """Raises: ValueError, whose text says what is wrong."""
    try:
        facts = json.loads(line.decode(), object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at column {error.colno:,}") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    if not isinstance(facts, dict):
        raise ValueError("it is JSON, but not an object")
    for name in facts:
        if name not in _OF_THE_LOG and name not in _OF_THE_MESSAGE:
            raise ValueError(f"{name!r} is unknown; there are {', '.join(_OF_THE_MESSAGE)}")
    if not facts.keys() & {"value", "value_base64"}:
        raise ValueError(
            "it has neither value nor value_base64; a message without a value has null there"
        )
    value = _bytes_of(facts, "value")
    return JsonMessage(
        number, value, _bytes_of(facts, "key"), _properties_of(facts), _event_time_of(facts)
    )


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it gives a name twice")
    return found


def _bytes_of(facts: Mapping[str, Any], name: str) -> bytes | None:
    text, encoded = facts.get(name), facts.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise ValueError(f"it has both {name} and {name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is not a text")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{name}_base64 is not base64: {error}") from None
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is not a text: JSON within it has to be quoted as a text")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} has half of a surrogate pair: give it as {name}_base64") from None


def _properties_of(facts: Mapping[str, Any]) -> Mapping[str, str] | None:
    properties = facts.get("properties")
    if properties is None:
        return None
    if not isinstance(properties, dict):
        raise ValueError("properties is not an object")
    for name, text in properties.items():
        if not isinstance(text, str):
            raise ValueError(f"the property {name!r} is not a text")
    return properties


def _event_time_of(facts: Mapping[str, Any]) -> int | None:
    time_ms = facts.get("event_time_ms")
    if time_ms is None:
        return None
    # True is an int for Python.
    if type(time_ms) is not int or time_ms not in _EVENT_TIMES_MS:
        raise ValueError("event_time_ms is not a whole number of milliseconds in 64 bits")
    return time_ms


def encode_values(columns: MessageColumns) -> bytes:
    """Return each value as a line; that of a message without a value is empty."""
    return b"\n".join((*(value or b"" for value in columns.values_or_none()), b""))


def encoder_of_keys(separator: bytes) -> Callable[[MessageColumns], bytes]:
    """Return a function that makes a line of each key, the separator and the value."""

    def encode(columns: MessageColumns) -> bytes:
        values = columns.values_or_none()
        keys = columns.keys() or [None] * len(values)
        lines = [
            (key or b"") + separator + (one or b"") for key, one in zip(keys, values, strict=True)
        ]
        return b"\n".join((*lines, b""))

    return encode


def encode_json(columns: MessageColumns) -> bytes:
    """Return each message as a line of JSON."""
    return "".join(json.dumps(_facts_of(column)) + "\n" for column in columns).encode()


def _facts_of(message: Message) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "message_id": str(message.message_id),
        "append_time_ms": message.append_time_ms,
    }
    if message.txn_id is not None:
        facts["txn_id"] = str(message.txn_id)
    if message.redelivery_count:
        facts["redelivery_count"] = message.redelivery_count
    return facts | content_of(message)


def content_of(message: Message | UncommittedMessage) -> dict[str, Any]:
    """Return the fields that an application gave a message, for JSON."""
    facts: dict[str, Any] = {}
    if message.event_time_ms is not None:
        facts["event_time_ms"] = message.event_time_ms
    if message.properties:
        facts["properties"] = dict(message.properties)
    if message.key is not None:
        facts |= _text_or_base64("key", message.key)
    if message.value_or_none is None:
        return facts | {"value": None}
    return facts | _text_or_base64("value", message.value_or_none)


def _text_or_base64(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
