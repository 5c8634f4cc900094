"""Reads options, which have the names of Spark's Kafka source and sink. Pure.

Source: Spark, Structured Streaming + Kafka Integration Guide; docs/spark.md has the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from magnetar_spark.errors import OptionError
from magnetar_spark.kafka_options import require_none_of_kafka
from magnetar_spark.offsets import EARLIEST, LATEST, METADATA, Places, to_places

SERVERS = "magnetar.bootstrap.servers"
# Names of options, and of the settings of links that they stand for.
_LINKS = {
    "magnetar.tls.ca.file": "tls_ca_file",
    "magnetar.tls.certificate.file": "tls_client_certificate_file",
    "magnetar.tls.key.file": "tls_client_key_file",
    "magnetar.tls.server.name": "tls_server_name",
    "magnetar.token.file": "token_file",
}
_TLS = "magnetar.tls"
TRIGGER_DELAY_MS_DEFAULT = 15 * 60_000
# Servers refuse more than their txn_timeout_ms_max, 15 minutes unless set otherwise.
TRANSACTION_TIMEOUT_MS_DEFAULT = 10 * 60_000

_SOURCE_BOTH = (
    SERVERS,
    _TLS,
    *_LINKS,
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
_SINK_BOTH = (
    SERVERS,
    _TLS,
    *_LINKS,
    "topic",
    "includeHeaders",
    "transactionTimeout",
    "compression",
    "failOnReplayMismatch",
)
_SINK_BATCH = ("txnAppId", "txnVersion")
# Spark's own, which it hands to every sink.
_SPARKS = ("checkpointLocation", "queryName", "path")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


class Bound(Enum):
    """How an option gives the beginning or the end of a read."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True)
class BoundOption:
    """Where to begin, or to end.

    Attributes:
        option: the option's name, for errors.
        places: for OFFSETS, offsets, with -2 for the first and -1 for the end; for TIMES,
            milliseconds.
        time_ms: for TIME, milliseconds since the Unix epoch.
        latest_when_absent: whether to begin at the end when no message is that new; otherwise that
            is an error.
    """

    option: str
    bound: Bound
    places: Places | None = None
    time_ms: int = 0
    latest_when_absent: bool = False


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


# Settings of links: names and values of LinkConfig.
Links = tuple[tuple[str, str | bool], ...]


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


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink.

    Attributes:
        links: as of a source.
        include_headers: whether to write the column 'headers', if it exists.
        fail_on_replay_mismatch: whether a committed batch that comes again with other rows is an
            error.
        app_id: the name of a batch write that counts once; None without.
        app_version: the version of that batch write; None without.
    """

    servers: tuple[str, ...]
    topic: str | None
    include_headers: bool
    timeout_ms: int
    codec: str
    fail_on_replay_mismatch: bool
    app_id: str | None
    app_version: int
    links: Links | None = None


def schema_options(given: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Read the options that decide the source's schema: includeHeaders and columns.

    Raises:
        OptionError: an option cannot be understood.
    """
    options = _Options(given)
    return options.flag("includeHeaders", default=False), options.names("columns")


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check the options of a source.

    Raises:
        OptionError: an option is unknown, belongs to the other kind of query, contradicts another
            option, or cannot be understood.
    """
    kind, other = ("streaming", _SOURCE_BATCH) if streaming else ("batch", _SOURCE_STREAM)
    own = _SOURCE_STREAM if streaming else _SOURCE_BATCH
    options = _Options(given)
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
    starting = _bound(options, "starting", Bound.LATEST if streaming else Bound.EARLIEST)
    ending = _bound(options, "ending", Bound.LATEST)
    if not streaming and starting.bound is Bound.LATEST:
        raise OptionError(
            "startingOffsets 'latest' has no meaning in a batch query: nothing lies behind the end"
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


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read and check the options of a sink.

    Raises:
        OptionError: as source_options.
    """
    options = _Options(given)
    if streaming:
        options.check_known(
            (*_SINK_BOTH, *_SPARKS),
            _SINK_BATCH,
            "is for batch writes, as in foreachBatch: a streaming query has its own id and batches",
        )
    else:
        options.check_known((*_SINK_BOTH, *_SINK_BATCH, *_SPARKS), (), "")
    app_id, version = options.text("txnAppId"), options.text("txnVersion")
    if (app_id is None) != (version is None):
        raise OptionError("txnAppId and txnVersion belong together: give both or none")
    if app_id == "":
        raise OptionError("txnAppId must not be empty")
    codec = (options.text("compression") or "none").lower()
    if codec not in ("none", "zstd", "lz4"):
        raise OptionError(f"compression is 'none', 'zstd' or 'lz4', not {codec!r}")
    timeout_ms = options.duration_ms("transactionTimeout", TRANSACTION_TIMEOUT_MS_DEFAULT)
    if timeout_ms == 0:
        raise OptionError("transactionTimeout must be above 0")
    return SinkOptions(
        servers=options.servers(),
        topic=options.text("topic"),
        include_headers=options.flag("includeHeaders", default=True),
        timeout_ms=timeout_ms,
        codec=codec,
        fail_on_replay_mismatch=options.flag("failOnReplayMismatch", default=True),
        app_id=app_id,
        app_version=0 if version is None else options.whole("txnVersion", version),
        links=options.links(),
    )


class _Options:
    """Options whatever the case of their names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(text) for name, text in given.items()}

    def check_known(self, known: Iterable[str], elsewhere: Iterable[str], why: str) -> None:
        names = {name.lower(): name for name in known}
        others = {name.lower(): name for name in elsewhere}
        for name in self._given:
            if name in others:
                raise OptionError(f"{others[name]} {why}")
            if name not in names:
                require_none_of_kafka(name)
                raise OptionError(
                    f"unknown option {name!r}; there are: {', '.join(sorted(names.values()))}"
                )

    def require_none(self, names: Iterable[str], why: str) -> None:
        for name in names:
            if self.text(name) is not None:
                raise OptionError(f"{name} {why}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def servers(self) -> tuple[str, ...]:
        text = self.text(SERVERS) or ""
        servers = tuple(one.strip() for one in text.split(",") if one.strip())
        if not servers:
            raise OptionError(
                f"option {SERVERS!r} is missing: the broker's 'host:port'. If it was given to"
                " CREATE TABLE ... USING magnetar, Spark does not hand it on: CREATE TEMPORARY VIEW"
                " ... USING magnetar OPTIONS (...) does"
            )
        for one in servers:
            host, _, port = one.rpartition(":")
            if not host or not port.isdigit():
                raise OptionError(f"{SERVERS}: {one!r} is not 'host:port'")
        return servers

    def links(self) -> Links | None:
        """The settings of links that are given; None: none is, and the environment says."""
        given = [(setting, text) for name, setting in _LINKS.items() if (text := self.text(name))]
        if not given and self.text(_TLS) is None:
            return None
        files = dict(given)
        if ("tls_client_certificate_file" in files) != ("tls_client_key_file" in files):
            raise OptionError(
                "magnetar.tls.certificate.file and magnetar.tls.key.file belong together: give both"
            )
        has_tls = self.flag(_TLS, default="tls_ca_file" in files)
        if "tls_client_certificate_file" in files and not has_tls:
            raise OptionError(
                "magnetar.tls.certificate.file has no use without magnetar.tls.ca.file"
            )
        return (("tls", has_tls), *given)

    def names(self, name: str) -> tuple[str, ...]:
        text = self.text(name)
        if text is None:
            return ()
        names = tuple(one.strip() for one in text.split(","))
        if not all(names):
            raise OptionError(f"{name} is a list as 'key,value', not {text!r}")
        return names

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} is 'true' or 'false', not {text!r}")
        return text.lower() == "true"

    def whole(self, name: str, text: str) -> int:
        # int() would take "1_000", " 7 " and other scripts' digits.
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise OptionError(f"{name} is a whole number from 0, not {text!r}")
        return int(text)

    def count(self, name: str) -> int:
        """A number above 0; 0 when it is not given."""
        text = self.text(name)
        if text is None:
            return 0
        number = self.whole(name, text)
        if number == 0:
            raise OptionError(f"{name} must be above 0")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.text(name)
        if text is None:
            return default_ms
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None or found[2] not in (*_UNIT_MS, ""):
            raise OptionError(
                f"{name} is a number with a unit of {', '.join(_UNIT_MS)}, as '90s', not {text!r}"
            )
        return int(found[1]) * _UNIT_MS[found[2] or "ms"]

    def parsed(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise OptionError(f"{name} is not JSON: {error}") from error

    def places(self, name: str, text: str, example: str) -> Places:
        parsed = self.parsed(name, text)
        if isinstance(parsed, dict):
            parsed.pop(METADATA, None)
        try:
            return to_places(parsed)
        except ValueError as error:
            raise OptionError(f"{name}: {error}; it looks like {example}") from error


def _topics(options: _Options) -> TopicChoice:
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


def _cut(options: _Options) -> tuple[str | None, str | None]:
    """The cut, and the earlier one. Whoever plans the read looks into the tokens."""
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
        raise OptionError("since is the token of an earlier cut, and 'now' is none")
    return cut, since


def _bound(options: _Options, which: str, default: Bound) -> BoundOption:
    """The most particular one counts, as in Spark's Kafka source: a time, times, then offsets."""
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy.lower() not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is 'error' or 'latest', not {strategy!r}"
        )
    # An end that no message has reached is the end that there is.
    lenient = which == "ending" or strategy.lower() == "latest"
    by_time, by_times = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    by_offset = f"{which}Offsets"
    text = options.text(by_time)
    if text is not None:
        time_ms = options.whole(by_time, text)
        return BoundOption(by_time, Bound.TIME, time_ms=time_ms, latest_when_absent=lenient)
    text = options.text(by_times)
    if text is not None:
        times = options.places(by_times, text, '{"flights": {"0": 1357000000000}}')
        if any(one < 0 for some in times.values() for one in some.values()):
            raise OptionError(f"{by_times}: a time is in milliseconds since 1970, from 0")
        return BoundOption(by_times, Bound.TIMES, times, latest_when_absent=lenient)
    text = options.text(by_offset)
    if text is None:
        return BoundOption(by_offset, default)
    if text.strip().lower() in (Bound.EARLIEST.value, Bound.LATEST.value):
        return BoundOption(by_offset, Bound(text.strip().lower()))
    places = options.places(by_offset, text, '{"flights": {"0": 23, "1": -2}}')
    refused = EARLIEST if which == "ending" else None
    for some in places.values():
        for one in some.values():
            if one < EARLIEST or one == refused:
                raise OptionError(f"{by_offset}: {one} is no offset to begin or end at")
    return BoundOption(by_offset, Bound.OFFSETS, places)


__all__ = [
    "EARLIEST",
    "LATEST",
    "NOW",
    "SERVERS",
    "Bound",
    "BoundOption",
    "SinkOptions",
    "SourceOptions",
    "TopicChoice",
    "schema_options",
    "sink_options",
    "source_options",
]
