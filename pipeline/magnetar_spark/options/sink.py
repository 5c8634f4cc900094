"""Reads the options of a sink. Pure.

Source: Spark, Structured Streaming + Kafka Integration Guide; docs/spark.md has the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar_spark.errors import OptionError
from magnetar_spark.options.given import SERVER_OPTIONS, GivenOptions, Links

# Servers refuse more than their txn_timeout_ms_max, 15 minutes unless set otherwise.
TRANSACTION_TIMEOUT_MS_DEFAULT = 10 * 60_000

_SINK_BOTH = (
    *SERVER_OPTIONS,
    "topic",
    "includeHeaders",
    "transactionTimeout",
    "compression",
    "failOnReplayMismatch",
)
_SINK_BATCH = ("txnAppId", "txnVersion")
# Spark's own, which it hands to every sink.
_SPARKS = ("checkpointLocation", "queryName", "path")


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


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read and check the options of a sink.

    Raises:
        OptionError: as source_options.
    """
    options = GivenOptions(given)
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
