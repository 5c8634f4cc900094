"""Consistent cuts: one moment over all partitions of some topics. Pure.

A cut takes the plain messages below each partition's end, and the transactions with markers below
the ends and stamps up to the cut's own. Every transaction is in it whole, or not at all.
Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magnetar_core.errors import InvalidArgument, TopicNotFound


class PartitionCut(NamedTuple):
    """A partition in a cut.

    Attributes:
        first_offset: the first message that was there.
        begun_offset: the end before the cut was begun; transactions above its stamp come after it.
        end_offset: the end after everything up to its stamp was finished.
    """

    ledger_id: int
    first_offset: int
    begun_offset: int
    end_offset: int


class TopicCut(NamedTuple):
    """A topic in a cut, with all of its partitions in order."""

    topic_id: int
    partitions: tuple[PartitionCut, ...]


class Cut(NamedTuple):
    """A moment over all partitions of some topics.

    Attributes:
        cluster_id: empty: the cluster has no id.
        stamp: transactions with higher stamps are not in it.
        topics: by name.
    """

    cluster_id: str
    stamp: int
    topics: Mapping[str, TopicCut]

    def topic(self, name: str) -> TopicCut:
        """Return a topic's part of the cut.

        Raises:
            TopicNotFound: the cut was taken without it.
        """
        found = self.topics.get(name)
        if found is None:
            raise TopicNotFound(f"the cut has no topic {name!r}, but {', '.join(self.topics)}")
        return found

    def partition(self, topic: str, partition: int) -> PartitionCut:
        """Return a partition's part of the cut.

        Raises:
            TopicNotFound: the cut was taken without the topic.
            InvalidArgument: the topic had no such partition.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise InvalidArgument(f"{topic} has no partition {partition} in the cut")
        return partitions[partition]


class CutRange(NamedTuple):
    """Part of a partition that is read at a cut, or between a cut and a later one.

    Attributes:
        start: the first offset to look at.
        end: the offset behind the last one.
        stamp: transactions with higher stamps are left out.
        seen_end: messages below it were in the earlier cut, unless their stamp is above seen_stamp;
            with `start`, nothing was.
        seen_stamp: the stamp of the earlier cut.
    """

    ledger_id: int
    start: int
    end: int
    stamp: int
    seen_end: int
    seen_stamp: int

    def takes(self, offset: int, stamp: int) -> bool:
        """Return whether a message belongs to the range.

        Args:
            offset: that of the message; a transaction's messages may be asked for by any of them.
            stamp: of its transaction; 0: it is plain.
        """
        if not self.start <= offset < self.end or stamp > self.stamp:
            return False
        return offset >= self.seen_end or stamp > self.seen_stamp


def range_at(cut: Cut, topic: str, partition: int) -> CutRange:
    """Return the range of a partition in a cut.

    Raises:
        TopicNotFound: the cut was taken without the topic.
        InvalidArgument: the topic had no such partition.
    """
    at = cut.partition(topic, partition)
    return CutRange(at.ledger_id, at.first_offset, at.end_offset, cut.stamp, at.first_offset, 0)


def range_between(earlier: Cut, later: Cut, topic: str, partition: int) -> CutRange:
    """Return the range of a partition that the later cut has, and the earlier one did not have.

    All of a partition that came between the cuts is in the range, from its first message on.

    Raises:
        TopicNotFound: one of the cuts was taken without the topic.
        InvalidArgument: the topic had no such partition, or the earlier cut is not earlier, or is
            of another cluster or another life of the topic.
    """
    after = later.partition(topic, partition)
    known = earlier.topic(topic).partitions
    is_new = partition >= len(known)
    before = PartitionCut(after.ledger_id, 0, 0, 0) if is_new else known[partition]
    # A cluster without an id may get one.
    if earlier.cluster_id and later.cluster_id and earlier.cluster_id != later.cluster_id:
        raise InvalidArgument("the cuts are of different clusters")
    if earlier.topic(topic).topic_id != later.topic(topic).topic_id:
        raise InvalidArgument(f"{topic} was deleted and created again between the cuts")
    if before.ledger_id != after.ledger_id:
        raise InvalidArgument(
            f"partition {partition} of {topic} was restored between the cuts: read the later one"
            " as a whole"
        )
    if earlier.stamp > later.stamp or before.end_offset > after.end_offset:
        raise InvalidArgument("the first cut is later than the second")
    return CutRange(
        after.ledger_id,
        before.begun_offset,
        after.end_offset,
        later.stamp,
        before.end_offset,
        earlier.stamp,
    )
