"""What values and keys must be, and how large a message may be. Pure."""

from __future__ import annotations

from magnetar.messaging.batching import Properties, size_of
from magnetar_core.errors import InvalidArgument, MessageTooLarge


def as_bytes(value: object, what: str) -> bytes:
    """Accept bytes-like values.

    Raises:
        InvalidArgument: not bytes, bytearray or memoryview.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}")


def check_size(
    value: bytes, key: bytes | None, properties: Properties | None, *, message_bytes_max: int
) -> int:
    """Count a message's bytes.

    Raises:
        MessageTooLarge: more than message_bytes_max.
    """
    size = len(value) + len(key or b"") + (size_of(properties) if properties else 0)
    if size > message_bytes_max:
        raise MessageTooLarge(
            f"a message of {size} bytes exceeds message_bytes_max, {message_bytes_max}",
            message_bytes_max=message_bytes_max,
        )
    return size
