"""Ids of topics as Kafka's clients know them. Pure."""

from __future__ import annotations

from uuid import UUID

# Upper half of the UUIDs of topics; the lower half is the topic's id.
_UUID_MARK = 0x4D61676E_65746172


def uuid_of(topic_id: int) -> UUID:
    """Return the UUID by which Kafka's clients know a topic."""
    return UUID(int=_UUID_MARK << 64 | topic_id)


def topic_id_of(uuid: UUID) -> int:
    """Return the id of the topic of a UUID; 0: it is not one of ours."""
    return uuid.int & (1 << 64) - 1 if uuid.int >> 64 == _UUID_MARK else 0
