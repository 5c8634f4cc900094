"""Reads the options of a source. Pure.

Source: Spark, Structured Streaming + Kafka Integration Guide; docs/spark.md has the tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from magnetar_spark.errors import OptionError
from magnetar_spark.options.bounds import Bound, BoundOption, bound_option
from magnetar_spark.options.given import SERVER_OPTIONS, GivenOptions, Links

TRIGGER_DELAY_MS_DEFAULT = 15 * 60_000

_SOURCE_BOTH = (
    *SERVER_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
)
_SOURCE_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_CUT = ("cut", "since")
# What a cut says by itself.
_BOUNDS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_SOURCE_BATCH,
)
NOW = "now"
_SOURCE_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


@dataclass(frozen=True)
class TopicChoice:
    """The topics of a query; exactly one of the attributes is given.

    Attributes:
        pattern: a regular expression that matches a topic's whole name.
        assigned: partitions by topic.
    """

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source. They have plain values, since Spark sends them to executors.

    Attributes:
        links: how servers are reached; None: as the environment of each process says.
        max_records: how many offsets a task reads at most; 0: no limit.
        columns: the columns to deliver; all if empty.
        cut: the token of the cut to read, or NOW; None: from `starting` to `ending`.
        since: the token of an earlier cut, whose messages are left out; None: without.
    """

    servers: tuple[str, ...]
    topics: TopicChoice
    starting: BoundOption
    ending: BoundOption
    min_partitions: int
    max_records: int
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...]
    max_offsets: int
    min_offsets: int
    trigger_delay_ms: int
    links: Links | None = None
    cut: str | None = None
    since: str | None = None


def schema_options(given: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Read the options that decide the source's schema: includeHeaders and columns.

    Raises:
        OptionError: an option cannot be understood.
    """
    options = GivenOptions(given)
    return options.flag("includeHeaders", default=False), options.names("columns")


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check the options of a source.

    Raises:
        OptionError: an option is unknown, belongs to the other kind of query, contradicts another
            option, or cannot be understood.
    """
    kind, other = ("streaming", _SOURCE_BATCH) if streaming else ("batch", _SOURCE_STREAM)
    own = _SOURCE_STREAM if streaming else _SOURCE_BATCH
    options = GivenOptions(given)
    if streaming:
        options.require_none(
            _CUT,
            "is for batches: a cut is one moment, and a streaming query goes on. Read it with"
            " spark.read, and with 'since' what has come since an earlier cut",
        )
    options.check_known(
        (*_SOURCE_BOTH, *_CUT, *own), other, f"has no meaning in a {kind} query: leave it out"
    )
    cut, since = _cut(options)
    starting = bound_option(options, "starting", Bound.LATEST if streaming else Bound.EARLIEST)
    ending = bound_option(options, "ending", Bound.LATEST)
    if not streaming and starting.bound is Bound.LATEST:
        raise OptionError(
            "startingOffsets 'latest' has no meaning in a batch query: there are no messages "
            "after the end"
        )
    if ending.bound is Bound.EARLIEST:
        raise OptionError("endingOffsets 'earliest' has no meaning: nothing lies before it")
    max_offsets = options.count("maxOffsetsPerTrigger")
    min_offsets = options.count("minOffsetsPerTrigger")
    if max_offsets and min_offsets > max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger, {min_offsets}, exceeds maxOffsetsPerTrigger, {max_offsets}"
        )
    return SourceOptions(
        servers=options.servers(),
        topics=_topics(options),
        starting=starting,
        ending=ending,
        min_partitions=options.count("minPartitions"),
        max_records=options.count("maxRecordsPerPartition"),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        include_headers=options.flag("includeHeaders", default=False),
        columns=options.names("columns"),
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        trigger_delay_ms=options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS_DEFAULT),
        links=options.links(),
        cut=cut,
        since=since,
    )


def _topics(options: GivenOptions) -> TopicChoice:
    names = ("subscribe", "subscribePattern", "assign")
    given = [(name, text) for name in names if (text := options.text(name)) is not None]
    if len(given) != 1:
        raise OptionError(f"name the topics by exactly one of {', '.join(names)}")
    name, text = given[0]
    if name == "subscribe":
        topics = tuple(sorted({one.strip() for one in text.split(",") if one.strip()}))
        if not topics:
            raise OptionError("subscribe names no topic")
        return TopicChoice(names=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern is not a regular expression of Python: {error}"
            ) from error
        return TopicChoice(pattern=text)
    assigned = options.parsed("assign", text)
    if (
        not isinstance(assigned, dict)
        or not assigned
        or not all(
            isinstance(some, list) and some and all(type(one) is int and one >= 0 for one in some)
            for some in assigned.values()
        )
    ):
        raise OptionError('assign names partitions by topic, as {"flights": [0, 1]}')
    return TopicChoice(
        assigned={topic: tuple(sorted(set(some))) for topic, some in sorted(assigned.items())}
    )


def _cut(options: GivenOptions) -> tuple[str | None, str | None]:
    """Return the tokens of the cut and of the earlier one; the planning parses them."""
    cut, since = options.text("cut"), options.text("since")
    if cut is None:
        if since is not None:
            raise OptionError("since names an earlier cut: name the later one with cut")
        return None, None
    options.require_none(
        _BOUNDS,
        "and cut contradict each other: a cut says where each partition begins and ends;"
        " 'since', with an earlier cut, leaves out what that one has",
    )
    if not options.flag("failOnDataLoss", default=True):
        raise OptionError(
            "failOnDataLoss 'false' and cut contradict each other: a cut that lacks messages is"
            " not one moment. Leave one of them out"
        )
    cut = NOW if cut.strip().lower() == NOW else cut
    if since is not None and since.strip().lower() == NOW:
        raise OptionError("since must be the token of an earlier cut: 'now' is not a token")
    return cut, since
