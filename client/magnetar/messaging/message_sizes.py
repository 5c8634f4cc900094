"""Checks the types of values and keys, and the size of messages. Pure."""

from __future__ import annotations

from magnetar.messaging.batching import Properties, size_of
from magnetar_core.errors import InvalidArgument, MessageTooLarge


def as_bytes(value: object, what: str) -> bytes:
    """Convert a bytes-like value.

    Raises:
        InvalidArgument: the value is not bytes, bytearray or memoryview.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}")


def check_size(
    value: bytes, key: bytes | None, properties: Properties | None, *, message_bytes_max: int
) -> int:
    """Return the size of a message in bytes.

    Raises:
        MessageTooLarge: the message exceeds message_bytes_max.
    """
    size = len(value) + len(key or b"") + (size_of(properties) if properties else 0)
    if size > message_bytes_max:
        raise MessageTooLarge(
            f"a message of {size} bytes exceeds message_bytes_max, {message_bytes_max}",
            message_bytes_max=message_bytes_max,
        )
    return size
