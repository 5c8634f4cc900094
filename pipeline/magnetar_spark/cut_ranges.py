"""Plans what a batch reads at a cut: one moment over all partitions of its topics.

The driver looks into the token, or takes the cut. Tasks get what the cut has of their partition, so
every attempt at a task reads the same rows.
Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar import Cut, blocking
from magnetar.cuts.cut import range_of
from magnetar_core.errors import InvalidArgument, TopicNotFound, UnsupportedVersion
from magnetar_spark.catalog import Catalog
from magnetar_spark.errors import OptionError
from magnetar_spark.options.source import NOW
from magnetar_spark.planning import Range

# How often a pattern is looked up again, when a topic that matches is deleted meanwhile.
LOOKS_MAX = 10

# The topics of a query, with the partitions that it names; none: all of them.
_Chosen = Sequence[tuple[str, tuple[int, ...]]]


def ranges_at(
    client: blocking.Client, catalog: Catalog, token: str, since: str | None
) -> list[Range]:
    """Return the range of each partition of a query in a cut.

    Args:
        token: that of the cut; NOW: take one of all topics of the query.
        since: the token of an earlier cut: leave out what it has.
    Raises:
        OptionError: a token is not valid; a cut does not have a topic or partition of the query, or
            is of another cluster or of a topic that was deleted; or the cuts do not fit.
        CutUnfinished: commits do not finish in time, so that no cut can be taken.
        MagnetarError: as blocking.Client.cut.
    """
    earlier = None if since is None else _parsed("since", since)
    if token == NOW:
        chosen, cut = _taken_now(client, catalog)
        if cut is None:
            return []  # No topic matches the pattern.
    else:
        cut = _parsed("cut", token)
        chosen = _topics_at(catalog, cut)
    cluster_id = client.admin.cluster_info().cluster_id
    ranges = []
    for topic, partitions in chosen:
        for partition in partitions or range(cut.partition_count(topic)):
            try:
                read = range_of(cut, earlier, topic, partition, cluster_id=cluster_id)
            except (InvalidArgument, TopicNotFound) as error:
                raise OptionError(f"cannot read at the cut: {error}") from error
            assert read is not None  # It is None only without a cut.
            found, topic_id = read
            ranges.append(Range(topic, topic_id, partition, found.start, found.end, found))
    return ranges


def _taken_now(client: blocking.Client, catalog: Catalog) -> tuple[_Chosen, Cut | None]:
    for _ in range(LOOKS_MAX):
        chosen = catalog.chosen()
        if not chosen:
            return chosen, None
        try:
            return chosen, client.cut([topic for topic, _ in chosen])
        except TopicNotFound as error:
            # A topic that matches a pattern was deleted just now.
            if not all(catalog.matches(topic) for topic, _ in chosen):
                raise OptionError(f"cannot read at a cut: {error}") from error
    raise OptionError("topics that match subscribePattern are deleted all the time")


def _topics_at(catalog: Catalog, cut: Cut) -> _Chosen:
    """The topics of the query, which the cut has, and which are still those of the cut."""
    extent = catalog.extent()
    extent.require_topics()
    absent = [topic for topic in cut.topics if catalog.matches(topic)]
    chosen = sorted({*extent.topic_ids, *absent})
    for topic in chosen:
        if topic not in cut.topics:
            raise OptionError(
                f"the cut has no topic {topic!r}, but {', '.join(cut.topics)}: take one cut of all"
                " topics that the job reads, or name with 'subscribe' only what this one has"
            )
        if extent.topic_ids.get(topic) != cut.taken.topic(topic).topic_id:
            raise OptionError(
                f"topic {topic!r} was deleted since the cut was taken: take another cut"
            )
    named = dict(catalog.chosen())
    return [(topic, named.get(topic, ())) for topic in chosen]


def _parsed(option: str, token: str) -> Cut:
    try:
        return Cut.parse(token)
    except (InvalidArgument, UnsupportedVersion) as error:
        raise OptionError(f"{option}: {error}") from error
