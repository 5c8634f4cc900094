"""Topics that a member of a consumer group reads, as its metadata says. Pure.

Source: Kafka's consumer protocol, ConsumerProtocolSubscription.
"""

from __future__ import annotations

_NUMBER_BYTES = 4
_LENGTH_BYTES = 2


def subscribed_topics(metadata: bytes) -> list[str]:
    """Return the topics of a subscription; of what cannot be read, those that come before it."""
    topics: list[str] = []
    at = _LENGTH_BYTES + _NUMBER_BYTES
    for _ in range(int.from_bytes(metadata[_LENGTH_BYTES:at], "big")):
        end = at + _LENGTH_BYTES + int.from_bytes(metadata[at : at + _LENGTH_BYTES], "big")
        if at + _LENGTH_BYTES > len(metadata) or end > len(metadata):
            break
        topics.append(metadata[at + _LENGTH_BYTES : end].decode(errors="replace"))
        at = end
    return topics
