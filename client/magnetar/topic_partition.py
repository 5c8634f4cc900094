"""A partition of a topic, by name and number."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its number, as applications name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-partition-{self.partition}"
