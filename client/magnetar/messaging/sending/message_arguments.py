"""Checks and copies the arguments of a message when an application gives them. Pure.

A batch is encoded later, with the messages of others: what fails there would fail all of them, and
what the application changes in between would be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from magnetar.arguments import INT64_MAX, INT64_MIN, integer, refusal, text
from magnetar_core.batch import encoded_properties
from magnetar_core.errors import InvalidArgument, MessageTooLarge

Properties = Mapping[str, str]
# A message as a batch takes it: value (None: a tombstone), key, properties as a batch stores them,
# event time.
Checked = tuple[bytes | None, bytes | None, bytes, int | None]

# The lowest int64 stands for no event time.
EVENT_TIME_MS_MIN = INT64_MIN + 1
BYTES_WANTED = "bytes, a bytearray or a memoryview"
BYTES_OR_NONE_WANTED = "bytes, a bytearray, a memoryview, or None"
_BYTES_OR_NONE = frozenset((bytes, type(None)))


def checked_message(
    value: object, key: object, properties: object, event_time_ms: object
) -> Checked:
    """Check and copy a message.

    Raises:
        InvalidArgument: a part of it has another type, or cannot be stored.
    """
    if type(value) is not bytes:
        value = as_bytes_or_none("value", value)
    if key is not None and type(key) is not bytes:
        key = as_bytes_or_none("key", key)
    encoded = b"" if properties is None else _encoded(properties)
    if event_time_ms is not None and (
        type(event_time_ms) is not int or not EVENT_TIME_MS_MIN <= event_time_ms <= INT64_MAX
    ):
        event_time_ms = integer("event_time_ms", event_time_ms, EVENT_TIME_MS_MIN, INT64_MAX)
    return value, key, encoded, event_time_ms


def checked_column(name: str, column: object) -> list[bytes | None]:
    """Check and copy the values or the keys of many messages.

    Raises:
        InvalidArgument: there are not several, or one of them is neither bytes-like nor None.
    """
    if not isinstance(column, Iterable):
        raise refusal(name, column, f"a sequence of {BYTES_WANTED}")
    found = list(column)
    if _BYTES_OR_NONE.issuperset(map(type, found)):
        return found
    return [as_bytes_or_none(f"{name}[{place}]", one) for place, one in enumerate(found)]


def as_bytes_or_none(name: str, value: object) -> bytes | None:
    """Copy a bytes-like value; None stays None.

    Raises:
        InvalidArgument: it is something else, or a view that was released.
    """
    if value is None:
        return None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise refusal(name, value, BYTES_OR_NONE_WANTED)
    try:
        return bytes(value)
    except ValueError as error:
        raise InvalidArgument(f"{name} cannot be read: {error}", argument=name) from error


def check_size(
    value: bytes | None, key: bytes | None, properties: bytes, *, message_bytes_max: int
) -> int:
    """Return the size of a message in bytes.

    Raises:
        MessageTooLarge: the message exceeds message_bytes_max.
    """
    size = len(value or b"") + len(key or b"") + len(properties)
    if size > message_bytes_max:
        raise MessageTooLarge(
            f"a message of {size} bytes exceeds message_bytes_max, {message_bytes_max}",
            message_bytes_max=message_bytes_max,
        )
    return size


def _encoded(properties: object) -> bytes:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise refusal("properties", properties, "a mapping of str to str")
    try:
        return encoded_properties(properties)
    except Exception as error:
        _refuse(properties, error)


def _refuse(properties: Mapping[object, object], error: Exception) -> NoReturn:
    """Say what is wrong with properties that cannot be encoded."""
    try:
        for name, value in properties.items():
            text("a name in properties", name)
            text(f"properties[{name!r}]", value)
    except InvalidArgument as refused:
        refused.details = {"argument": "properties"}
        raise
    except Exception as raised:
        error = raised
    # Another thread has changed them meanwhile, or they raise when they are read.
    raise InvalidArgument(
        f"properties could not be read: {type(error).__name__}: {error}", argument="properties"
    ) from error
