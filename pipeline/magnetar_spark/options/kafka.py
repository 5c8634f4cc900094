"""Replacements of options that only Spark's Kafka source and sink have. Pure.

Source: Spark, Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

from magnetar_spark.errors import OptionError

_NO_GROUP = (
    "the source belongs to no consumer group, since the query's checkpoint says how far it has"
    " come: leave it out. A group that is to follow what the query has done reads its output"
)
_NO_RETRIES = (
    "offsets are asked for again by themselves, as long as an operation may take: leave it out"
)
_NO_POLL = (
    "tasks read ranges that are there already, and wait for no poll: leave it out;"
    " 'maxOffsetsPerTrigger' and 'maxRecordsPerPartition' say how much a batch and a task read"
)
_NO_CLIENT = "there is no Kafka client here that would take it: leave it out"
_REPLACED = {
    "groupidprefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchoffset.numretries": _NO_RETRIES,
    "fetchoffset.retryintervalms": _NO_RETRIES,
    "kafkaconsumer.polltimeoutms": _NO_POLL,
    "kafka.max.poll.records": _NO_POLL,
    "kafka.max.partition.fetch.bytes": _NO_POLL,
    "kafka.fetch.min.bytes": _NO_POLL,
    "kafka.fetch.max.bytes": _NO_POLL,
    "kafka.fetch.max.wait.ms": _NO_POLL,
    "kafka.bootstrap.servers": "here it is 'magnetar.bootstrap.servers', with Magnetar's brokers",
    "kafka.compression.type": "here it is 'compression': 'none', 'zstd' or 'lz4'",
    "kafka.transaction.timeout.ms": "here it is 'transactionTimeout'",
    "kafka.transactional.id": (
        "each batch is a transaction anyway: leave it out; in foreachBatch"
        " 'txnAppId' and 'txnVersion' name what counts once"
    ),
    "kafka.acks": "what is committed is on disk, whatever is set: leave it out",
    "kafka.isolation.level": "what is not committed is never read: leave it out",
}
_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.")


def require_none_of_kafka(name: str) -> None:
    """Check that an option is none of Kafka's.

    Raises:
        OptionError: it is an option of Kafka; the error says what to use instead.
    """
    known = _REPLACED.get(name.lower())
    if known is None and name.lower().startswith(_PREFIXES):
        known = _NO_CLIENT
    if known is not None:
        raise OptionError(f"option {name!r} is of Kafka's source or sink: {known}")
