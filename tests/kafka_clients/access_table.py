"""The roles that may send each request. Written by hand: each new request needs a row here.

Roles and principals are those of the table of commands.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from tests.access.table import DESCRIBING, EVERYBODY
from tests.kafka_clients.harness import batch, fetch, produce

from magnetar_core import record_batch
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
# What they may do with the group `group`, and with the transactional id `id-a`.
READING_THE_GROUP = {"admin", "reader"}
DESCRIBING_THE_GROUP = {"admin", "reader", "manager", "viewer"}
WRITING_AS_THE_ID = {"admin", "writer", "preparer"}
DESCRIBING_THE_ID = {"admin", "writer", "preparer", "manager", "viewer"}
SEEING_THE_CLUSTER = {"admin", "viewer", "operator", "keeper"}
TOPIC, BROKER = 2, 4


def resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def _configs(**more: Any) -> dict[str, Any]:
    one = {"name": "retention.ms", "value": "86400000", "config_operation": 0}
    topic = resource(TOPIC, "topic-a", configs=[one])
    return {"resources": [topic], "validate_only": False, **more}


TRANSACTIONAL_BATCH = batch(
    b"a", producer_id=1, epoch=0, sequence=0, attributes=record_batch.TRANSACTIONAL
)
COMMITTED = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
_OF_TOPIC = [{"name": "topic-a", "partition_indexes": [0]}]
ASKED_OFFSETS = {
    "group_id": "group",
    "topics": _OF_TOPIC,
    "groups": [{"group_id": "group", "topics": _OF_TOPIC}],
}
OF_THE_ID = {"transactional_id": "id-a", "producer_id": 1, "producer_epoch": 0}
_ADDED = [{"name": "topic-a", "partitions": [0]}]
ADDED_PARTITIONS = {
    "v3_and_below_transactional_id": "id-a",
    "v3_and_below_producer_id": 1,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": _ADDED,
    "transactions": [{**OF_THE_ID, "verify_only": False, "topics": _ADDED}],
}
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
    (apis.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["group"]}, DESCRIBING_THE_GROUP),
    (apis.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["id-a"]}, DESCRIBING_THE_ID),
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
    # Groups.
    (
        apis.JOIN_GROUP,
        {
            "group_id": "group",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "no member",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        READING_THE_GROUP,
    ),
    (
        apis.SYNC_GROUP,
        {"group_id": "group", "generation_id": 1, "member_id": "no member", "assignments": []},
        READING_THE_GROUP,
    ),
    (
        apis.HEARTBEAT,
        {"group_id": "group", "generation_id": 1, "member_id": "no member"},
        READING_THE_GROUP,
    ),
    (
        apis.LEAVE_GROUP,
        {
            "group_id": "group",
            "member_id": "no member",
            "members": [{"member_id": "no member", "group_instance_id": None}],
        },
        READING_THE_GROUP,
    ),
    (apis.DESCRIBE_GROUPS, {"groups": ["group"]}, DESCRIBING_THE_GROUP),
    (apis.LIST_GROUPS, {}, EVERYBODY),
    (
        apis.OFFSET_COMMIT,
        {
            "group_id": "group",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": "topic-a", "partitions": [COMMITTED]}],
        },
        READING_THE_GROUP,
    ),
    (apis.OFFSET_FETCH, ASKED_OFFSETS, {"admin", "reader", "manager", "viewer"}),
    (
        apis.OFFSET_DELETE,
        {
            "group_id": "group",
            "topics": [{"name": "topic-a", "partitions": [{"partition_index": 0}]}],
        },
        # There is no such group: who may only delete it is not told whether topics are read.
        {"admin", "manager"},
    ),
    (apis.DELETE_GROUPS, {"groups_names": ["group"]}, {"admin", "manager"}),
    # Transactions.
    (
        apis.INIT_PRODUCER_ID,
        {"transactional_id": "id-a", "transaction_timeout": 1_000},
        WRITING_AS_THE_ID,
    ),
    (
        apis.INIT_PRODUCER_ID,
        {"transactional_id": "id-a", "transaction_timeout": 1_000, "enable2_pc": True},
        {"admin", "preparer"},
    ),
    (apis.ADD_PARTITIONS_TO_TXN, ADDED_PARTITIONS, {"admin", "writer"}),
    (
        apis.PRODUCE,
        {**produce(TRANSACTIONAL_BATCH, topic="topic-a"), "transactional_id": "id-a"},
        {"admin", "writer"},
    ),
    (apis.ADD_OFFSETS_TO_TXN, {**OF_THE_ID, "group_id": "group"}, {"admin"}),
    (
        apis.TXN_OFFSET_COMMIT,
        {
            **OF_THE_ID,
            "group_id": "group",
            "topics": [{"name": "topic-a", "partitions": [COMMITTED]}],
        },
        {"admin"},
    ),
    (apis.END_TXN, {**OF_THE_ID, "committed": False}, WRITING_AS_THE_ID),
    (apis.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["id-a"]}, DESCRIBING_THE_ID),
    (apis.LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []}, EVERYBODY),
    (
        apis.DESCRIBE_PRODUCERS,
        {"topics": [{"name": "topic-a", "partition_indexes": [0]}]},
        {"admin", "reader"},
    ),
    (
        apis.WRITE_TXN_MARKERS,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": "topic-a", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        {"admin", "operator"},
    ),
]
# They come before a client is known.
BEFORE = {apis.SASL_AUTHENTICATE}


def codes_of(answer: Any) -> set[int]:
    """All codes in an answer, wherever they are."""
    if isinstance(answer, list):
        return {code for one in answer for code in codes_of(one)}
    if not isinstance(answer, dict):
        return set()
    own = {code for name, code in answer.items() if name.endswith("error_code")}
    return own | {code for one in answer.values() for code in codes_of(one)}
