"""Cuts that jobs work at: taken or read from a token, and what lies below their ends beside them.

A job reads every offset below a cut's ends, to see that nothing is missing. Some transactions there
may be later than the cut: those that were decided while it was taken. They are few.
Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar import Cut, blocking
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    OutOfRange,
    TopicNotFound,
    UnsupportedVersion,
)
from magnetar_spark.jobs.failures import JobError
from magnetar_spark.options.source import NOW

_STAMP_MAX: Final = (1 << 64) - 1


def cut_at(client: blocking.Client, at: str, topics: Sequence[str]) -> Cut:
    """Return the cut at which a job works.

    Args:
        at: the token of a cut, which must be all there still; NOW: take one.
        topics: the topics of the job; none, with a token: those of the cut.
    Raises:
        JobError: the token is not valid, or is of another cluster; a topic is not in the cut, or
            was deleted or restored since.
        TopicNotFound: a topic does not exist.
        MagnetarError: as blocking.Client.cut.
    """
    if at == NOW:
        return client.cut(topics)
    try:
        cut = Cut.parse(at)
    except (InvalidArgument, UnsupportedVersion) as error:
        raise JobError(f"--at: {error}") from error
    cluster_id, own = client.admin.cluster_info().cluster_id, cut.taken.cluster_id
    if own and cluster_id and own != cluster_id:
        raise JobError(f"--at: the cut is of the cluster {own!r}, and this is {cluster_id!r}")
    for topic in topics or cut.topics:
        if topic not in cut.topics:
            raise JobError(
                f"--at: the cut has no topic {topic!r}, but {', '.join(cut.topics)}: take one cut"
                " of all topics (`magnetar cut TOPIC...`)"
            )
        _check_there(client, cut, topic)
    return cut


def _check_there(client: blocking.Client, cut: Cut, topic: str) -> None:
    taken = cut.taken.topic(topic)
    try:
        found = client.admin.topics.list_offsets(topic, topic_id=taken.topic_id)
    except Gone as error:
        raise JobError(f"--at: {topic!r} was deleted since: take another cut") from error
    if len(found.partitions) < len(taken.partitions):
        raise JobError(f"--at: {topic} was restored since the cut was taken: take another one")
    # The topic may have got more partitions since.
    for one, place in zip(found.partitions, taken.partitions, strict=False):
        if one.ledger_id != place.ledger_id or one.end_offset < place.end_offset:
            raise JobError(
                f"--at: {topic} partition {one.partition} was restored, or has lost messages, since"
                " the cut was taken: take another one"
            )
        if one.first_offset > place.first_offset:
            raise JobError(
                f"--at: {topic} partition {one.partition} begins at {one.first_offset} now, and at"
                f" {place.first_offset} in the cut: take another one"
            )


def later_than(client: blocking.Client, cut: Cut, topics: Iterable[str]) -> frozenset[str]:
    """Return the transactions below a cut's ends that are not in it.

    All other transactions below its ends are in it, whole.

    Raises:
        JobError: a topic or messages of the cut have gone.
        MagnetarError: the servers cannot be reached.
    """
    found: set[str] = set()
    for topic in topics:
        taken = cut.taken.topic(topic)
        for number, place in enumerate(taken.partitions):
            start, end = place.begun_offset, place.end_offset
            # As if the cut were the earlier one of two, and the later one had everything.
            beside = CutRange(place.ledger_id, start, end, _STAMP_MAX, end, cut.taken.stamp)
            try:
                for pieces in client.read_ahead(
                    topic, number, start, end, topic_id=taken.topic_id, cut=beside
                ):
                    found |= {str(columns.txn_id) for columns in pieces}
            except (Gone, OutOfRange, TopicNotFound) as error:
                raise JobError(f"{topic!r} changed while it was looked at: {error}") from error
    return frozenset(found)
