"""Finds the topics of a query in the cluster, and where their partitions begin and end."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

from magnetar import blocking
from magnetar.admin.topic_descriptions import TopicOffsets
from magnetar_core.errors import Gone, TopicNotFound
from magnetar_spark.errors import OptionError
from magnetar_spark.offsets import EARLIEST, LATEST, Places, each
from magnetar_spark.options.bounds import Bound, BoundOption
from magnetar_spark.options.source import TopicChoice


@dataclass(frozen=True)
class Extent:
    """Beginnings and ends of a query's partitions at one moment.

    Attributes:
        missing: topics that the query names and that do not exist, with the broker's message.
    """

    first: Places
    end: Places
    topic_ids: dict[str, int]
    missing: dict[str, str] = field(default_factory=dict)

    def require_topics(self, *, except_for: Container[str] = ()) -> None:
        """Check that all topics exist, except for the given ones.

        Raises:
            OptionError: a topic does not exist.
        """
        for topic, error in self.missing.items():
            if topic not in except_for:
                raise OptionError(f"cannot read topic {topic!r}: {error}")


class Catalog:
    """Asks the broker about the topics of a query. It holds a client, so it is never pickled."""

    def __init__(self, client: blocking.Client, topics: TopicChoice) -> None:
        self._client = client
        self._topics = topics

    def extent(self) -> Extent:
        """Return the partitions of the query as they are now."""
        extent = Extent({}, {}, {})
        for topic, partitions in self.chosen():
            try:
                found = self._client.admin.topics.list_offsets(topic, partitions=partitions)
            except TopicNotFound as error:
                if not self._topics.pattern:  # Of a pattern, it was deleted just now.
                    extent.missing[topic] = str(error)
                continue
            _add(extent, topic, found)
        return extent

    def chosen(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the topics of the query, with the partitions that it names; none: all of them."""
        if self._topics.assigned is not None:
            return list(self._topics.assigned.items())
        if self._topics.pattern:
            listed = self._client.admin.topics.list()
            return [(one.topic, ()) for one in listed if self.matches(one.topic)]
        return [(topic, ()) for topic in self._topics.names]

    def matches(self, topic: str) -> bool:
        """Return whether a topic belongs to the query by the query's pattern."""
        pattern = self._topics.pattern
        return bool(pattern) and re.fullmatch(pattern, topic) is not None

    def resolve(self, option: BoundOption, extent: Extent) -> Places:
        """Return the offsets that an option means now, for all partitions of the query.

        Raises:
            OptionError: the option names other partitions than the query has, or no message is as
                new as its time.
        """
        if option.bound is Bound.EARLIEST:
            return extent.first
        if option.bound is Bound.LATEST:
            return extent.end
        if option.bound is Bound.TIME:
            times = {
                topic: dict.fromkeys(some, option.time_ms) for topic, some in extent.end.items()
            }
            return self._at_times(option, times, extent)
        assert option.places is not None
        _check_partitions(option, option.places, extent)
        if option.bound is Bound.TIMES:
            return self._at_times(option, option.places, extent)
        places: Places = {}
        for topic, partition, given in each(option.places):
            named = {EARLIEST: extent.first, LATEST: extent.end}.get(given)
            offset = given if named is None else named[topic][partition]
            if offset > extent.end[topic][partition]:
                raise OptionError(
                    f"{option.option}: {topic} partition {partition} ends at"
                    f" {extent.end[topic][partition]}, and {offset} is beyond it"
                )
            places.setdefault(topic, {})[partition] = offset
        return places

    def _at_times(self, option: BoundOption, times: Places, extent: Extent) -> Places:
        places: Places = {}
        for topic, some in times.items():
            for time_ms in sorted(set(some.values())):
                partitions = [one for one, given in some.items() if given == time_ms]
                try:
                    found = self._client.admin.topics.list_offsets(
                        topic,
                        partitions=partitions,
                        append_time_ms=time_ms,
                        topic_id=extent.topic_ids[topic],
                    )
                except (Gone, TopicNotFound) as error:
                    raise OptionError(f"{topic!r} was deleted while it was planned") from error
                for one in found.partitions:
                    assert one.time_offset is not None
                    end = extent.end[topic][one.partition]
                    if one.time_offset >= end and not option.latest_when_absent:
                        raise OptionError(
                            f"{option.option}: {topic} partition {one.partition} has no message"
                            f" from {time_ms} on; startingOffsetsByTimestampStrategy 'latest'"
                            " begins at its end"
                        )
                    places.setdefault(topic, {})[one.partition] = min(one.time_offset, end)
        return places


def _add(extent: Extent, topic: str, found: TopicOffsets) -> None:
    extent.topic_ids[topic] = found.topic_id
    extent.first[topic] = {one.partition: one.first_offset for one in found.partitions}
    extent.end[topic] = {one.partition: one.end_offset for one in found.partitions}


def _check_partitions(option: BoundOption, places: Places, extent: Extent) -> None:
    named = {(topic, partition) for topic, partition, _ in each(places)}
    there = {(topic, partition) for topic, partition, _ in each(extent.end)}
    if named != there:
        raise OptionError(
            f"{option.option} has to name every partition of the query once."
            f" Not named: {_list(there - named)}; not in the query: {_list(named - there)}"
        )


def _list(partitions: set[tuple[str, int]]) -> str:
    shown = [f"{topic} {partition}" for topic, partition in sorted(partitions)]
    return ", ".join(shown[:20] + ["..."] * (len(shown) > 20)) or "none"
