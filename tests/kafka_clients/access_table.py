"""The roles that may send each request. Written by hand: each new request needs a row here.

Roles and principals are those of the table of commands.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from tests.access.table import DESCRIBING, EVERYBODY
from tests.kafka_clients.harness import batch, fetch, produce

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis
from magnetar_kafka.wire.apis import Api

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
CHANGING = {"admin", "manager", "broker"}
SEEING_THE_CLUSTER = {"admin", "viewer", "operator", "keeper"}
TOPIC, BROKER = 2, 4


def resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def _configs(**more: Any) -> dict[str, Any]:
    one = {"name": "retention.ms", "value": "86400000", "config_operation": 0}
    topic = resource(TOPIC, "topic-a", configs=[one])
    return {"resources": [topic], "validate_only": False, **more}


NEW_TOPIC = {"name": "topic-a", "num_partitions": 1, "replication_factor": 3}
TABLE: list[tuple[Api, dict[str, Any], Set[str]]] = [
    (
        apis.API_VERSIONS,
        {"client_software_name": "a", "client_software_version": "1"},
        EVERYBODY,
    ),
    (apis.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, EVERYBODY),
    (apis.METADATA, {"topics": None}, EVERYBODY),
    (apis.METADATA, {"topics": [{"name": "topic-a"}]}, DESCRIBING),
    (apis.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True}, EVERYBODY),
    (apis.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["group"]}, EVERYBODY),
    (apis.CREATE_TOPICS, {"topics": [NEW_TOPIC], "timeout": 1_000}, CHANGING),
    (apis.PRODUCE, produce(batch(b"a"), topic="topic-a"), {"admin", "writer"}),
    (apis.FETCH, fetch(topic="topic-a"), {"admin", "reader"}),
    (
        apis.LIST_OFFSETS,
        {"topics": [{"name": "topic-a", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        DESCRIBING,
    ),
    (
        apis.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout": 1_000},
        {"admin", "writer", "neighbour"},
    ),
    (apis.DESCRIBE_CONFIGS, {"resources": [resource(TOPIC, "topic-a")]}, DESCRIBING),
    (apis.DESCRIBE_CONFIGS, {"resources": [resource(BROKER, "1")]}, SEEING_THE_CLUSTER),
    (
        apis.DESCRIBE_ACLS,
        {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
        SEEING_THE_CLUSTER,
    ),
    (apis.DESCRIBE_LOG_DIRS, {"topics": None}, SEEING_THE_CLUSTER),
    (apis.ALTER_CONFIGS, _configs(), CHANGING),
    (apis.INCREMENTAL_ALTER_CONFIGS, _configs(), CHANGING),
    (
        apis.INCREMENTAL_ALTER_CONFIGS,
        {"resources": [resource(BROKER, "1", configs=[])], "validate_only": True},
        {"admin", "operator"},
    ),
    (
        apis.CREATE_PARTITIONS,
        {
            "topics": [{"name": "topic-a", "count": 2, "assignments": None}],
            "timeout": 1_000,
            "validate_only": True,
        },
        CHANGING,
    ),
    (
        apis.DELETE_RECORDS,
        {
            "topics": [{"name": "topic-a", "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 1_000,
        },
        CHANGING,
    ),
    (apis.DELETE_TOPICS, {"topics": [{"name": "topic-z", "topic_id": None}]}, CHANGING),
]
# They come before a client is known.
BEFORE = {apis.SASL_AUTHENTICATE}


def codes_of(answer: Any) -> set[int]:
    """All codes in an answer, wherever they are."""
    if isinstance(answer, list):
        return {code for one in answer for code in codes_of(one)}
    if not isinstance(answer, dict):
        return set()
    own = {answer["error_code"]} if "error_code" in answer else set()
    return own | {code for one in answer.values() for code in codes_of(one)}
