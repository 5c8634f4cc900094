"""Plans which offsets a batch reads, and how tasks divide them. Pure.

Source: Spark, KafkaMicroBatchStream.rateLimit and KafkaOffsetRangeCalculator, with the same
    results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from magnetar_core.cuts.cuts import CutRange
from magnetar_spark.offsets import Places, each


@dataclass(frozen=True)
class Range:
    """The offsets of a partition from `start` to before `end`.

    Attributes:
        cut: only what a cut takes of the partition; None: everything.
    """

    topic: str
    topic_id: int
    partition: int
    start: int
    end: int
    cut: CutRange | None = None

    @property
    def count(self) -> int:
        """Number of offsets in the range."""
        return self.end - self.start


def new_count(begin: Mapping[str, Mapping[int, int]], end: Mapping[str, Mapping[int, int]]) -> int:
    """Return how many offsets lie between two ends."""
    return sum(max(0, last - begin[topic][partition]) for topic, partition, last in each(end))


def limited(
    begin: Mapping[str, Mapping[int, int]], end: Mapping[str, Mapping[int, int]], count_max: int
) -> Places:
    """Return an earlier end, with about `count_max` offsets, divided by what partitions have.

    Each partition with new offsets gets at least one, so that none starves.
    """
    total = new_count(begin, end)
    places: Places = {}
    for topic, partition, last in each(end):
        first = begin[topic][partition]
        size = max(0, last - first)
        share = size if total <= count_max else min(size, max(1, count_max * size // total))
        places.setdefault(topic, {})[partition] = first + share if size else last
    return places


def split(
    ranges: Sequence[Range], min_partitions: int, records_max: int | None = None
) -> list[Range]:
    """Split the largest ranges until there are `min_partitions`, if there are that many offsets.

    Args:
        ranges: the ranges.
        min_partitions: how many ranges to make at least.
        records_max: how many offsets a range has at most; None: no limit.
    """
    some = [one for one in ranges if one.count > 0]
    counts = [1 if records_max is None else -(-one.count // records_max) for one in some]
    if sum(counts) < min_partitions:
        total = sum(one.count for one in some)
        shares = [min(one.count, -(-one.count * min_partitions // total)) for one in some]
        counts = [max(pair) for pair in zip(counts, shares, strict=True)]
    pieces: list[Range] = []
    for one, count in zip(some, counts, strict=True):
        bounds = [one.start + one.count * number // count for number in range(count + 1)]
        pieces += [replace(one, start=first, end=last) for first, last in pairwise(bounds)]
    return pieces
