"""Offsets as Spark keeps them: JSON, {"topic": {"0": 23}}, as its Kafka source writes them. Pure.

Beside the topics, whose names never begin so, "@magnetar" holds what a replay needs and what the
offsets alone do not say: which topics these were (a topic that is deleted and made again begins at
0), and, in the first batch's end, where the query began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# As in Spark's Kafka source.
LATEST = -1
EARLIEST = -2

METADATA = "@magnetar"

# Offsets, or times, by topic and partition.
Places = dict[str, dict[int, int]]


def to_places(parsed: object) -> Places:
    """Raises: ValueError, for anything but numbers by partition by topic."""
    places: Places = {}
    if not isinstance(parsed, dict):
        raise ValueError("not an object")
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} has no object of partitions")
        places[topic] = {}
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or type(number) is not int:
                raise ValueError(f"{topic!r} has {partition!r}: {number!r}")
            places[topic][int(partition)] = number
    return places


def to_json(places: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    """In order: Spark compares texts."""
    return {
        topic: {str(partition): places[topic][partition] for partition in sorted(places[topic])}
        for topic in sorted(places)
    }


def each(places: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and number, in order."""
    for topic in sorted(places):
        for partition in sorted(places[topic]):
            yield topic, partition, places[topic][partition]


@dataclass(frozen=True)
class StreamOffset:
    """How far a query has come.

    Attributes:
        places: the first offset of each partition that was not read.
        topic_ids: whose offsets these are.
        start: of the first batch's end: where it began.
    """

    places: Places
    topic_ids: dict[str, int] = field(default_factory=dict)
    start: Places | None = None

    def to_json(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"topics": dict(sorted(self.topic_ids.items()))}
        if self.start is not None:
            metadata["start"] = to_json(self.start)
        return to_json(self.places) | {METADATA: metadata}

    @classmethod
    def from_json(cls, parsed: Mapping[str, Any]) -> StreamOffset:
        """Raises: ValueError, for what to_json did not make."""
        metadata = parsed.get(METADATA, {})
        places = to_places({name: some for name, some in parsed.items() if name != METADATA})
        topic_ids = metadata.get("topics", {})
        start = metadata.get("start")
        return cls(places, dict(topic_ids), None if start is None else to_places(start))
