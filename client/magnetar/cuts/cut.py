"""A consistent cut, as applications have it.

Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.cuts import cut_token, cuts
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.cuts.hybrid_clock import time_ms_of
from magnetar_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment over all partitions of some topics, in which every transaction is whole or absent.

    `str()` returns its token, which `parse` reads again, here or elsewhere. `Client.cut` takes it.

    Attributes:
        taken: what it consists of.
    """

    taken: cuts.Cut

    def __str__(self) -> str:
        return cut_token.to_text(self.taken)

    @classmethod
    def parse(cls, token: str) -> Cut:
        """Read the token of a cut.

        Raises:
            InvalidArgument: it is not a token, or is damaged.
            UnsupportedVersion: a later version has made it.
        """
        return cls(cut_token.parse(token))

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics."""
        return tuple(self.taken.topics)

    @property
    def time_ms(self) -> int:
        """When it was taken, in milliseconds since the Unix epoch, by the coordinators' clocks."""
        return time_ms_of(self.taken.stamp)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic had.

        Raises:
            TopicNotFound: the cut was taken without the topic.
        """
        return len(self.taken.topic(topic).partitions)


def range_of(
    at: Cut | str | None, since: Cut | str | None, topic: str, partition: int, *, cluster_id: str
) -> tuple[CutRange, int] | None:
    """Return the range of a partition at a cut, and the topic's id; None: without a cut.

    Args:
        since: leave out what this earlier cut has.
        cluster_id: that of the cluster to be read; empty: it has none.
    Raises:
        TopicNotFound: a cut was taken without the topic.
        InvalidArgument: a cut is not valid, or of another cluster, or only the earlier one is
            given, or they do not fit.
        UnsupportedVersion: a later version has made the token.
    """
    if at is None:
        if since is not None:
            raise InvalidArgument("since names an earlier cut: name the later one with at")
        return None
    later = cut_of(at)
    if later.cluster_id and cluster_id and later.cluster_id != cluster_id:
        raise InvalidArgument(
            f"the cut is of the cluster {later.cluster_id!r}, and this is {cluster_id!r}"
        )
    if since is None:
        found = cuts.range_at(later, topic, partition)
    else:
        found = cuts.range_between(cut_of(since), later, topic, partition)
    return found, later.topic(topic).topic_id


def cut_of(cut: Cut | str) -> cuts.Cut:
    """Return the parts of a cut.

    Args:
        cut: or its token.
    Raises:
        InvalidArgument: the token is damaged.
        UnsupportedVersion: a later version has made it.
    """
    return cut_token.parse(cut) if isinstance(cut, str) else cut.taken
