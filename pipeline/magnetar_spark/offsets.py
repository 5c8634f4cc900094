"""Offsets as Spark stores them: JSON, {"topic": {"0": 23}}, as its Kafka source writes them. Pure.

Beside the topics, the entry "@magnetar" (no topic has such a name) has what a repeated batch needs
and the offsets do not say: the ids of the topics (a topic that was deleted and made again begins at
0), and, in the end of the first batch, where the query began.
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
    """Return the offsets by topic and partition.

    Raises:
        ValueError: the JSON is something else.
    """
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
    """Return the JSON, in a fixed order, since Spark compares texts."""
    return {
        topic: {str(partition): places[topic][partition] for partition in sorted(places[topic])}
        for topic in sorted(places)
    }


def each(places: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and number, in order."""
    for topic in sorted(places):
        for partition in sorted(places[topic]):
            yield topic, partition, places[topic][partition]


@dataclass(frozen=True)
class StreamOffset:
    """Progress of a query.

    Attributes:
        places: for each partition the first offset that was not read.
        topic_ids: the ids of the topics.
        start: in the end of the first batch, where the query began.
    """

    places: Places
    topic_ids: dict[str, int] = field(default_factory=dict)
    start: Places | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for Spark's checkpoint."""
        metadata: dict[str, Any] = {"topics": dict(sorted(self.topic_ids.items()))}
        if self.start is not None:
            metadata["start"] = to_json(self.start)
        return to_json(self.places) | {METADATA: metadata}

    @classmethod
    def from_json(cls, parsed: Mapping[str, Any]) -> StreamOffset:
        """Read a text of to_json().

        Raises:
            ValueError: the JSON is something else.
        """
        metadata = parsed.get(METADATA, {})
        places = to_places({name: some for name, some in parsed.items() if name != METADATA})
        topic_ids = metadata.get("topics", {})
        start = metadata.get("start")
        return cls(places, dict(topic_ids), None if start is None else to_places(start))
