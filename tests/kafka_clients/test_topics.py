"""Topics: what is told of them, how they are made and deleted, which settings are refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.kafka_clients.harness import KafkaWorld, run

from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.wire import topic_pb2
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.requests.topic_ids import uuid_of
from magnetar_kafka.wire import apis

SEVERAL = tuple(MemberAddress(name=f"broker-{n}", address=f"127.0.0.1:{n + 1}") for n in (0, 1))


def asked(name: str, **more: Any) -> dict[str, Any]:
    given = {key.replace("_", "."): value for key, value in more.pop("configs", {}).items()}
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in given.items()],
        **more,
    }


async def created(world: KafkaWorld, *topics: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    client = await world.connect()
    body = {"topics": list(topics), "timeout": 1_000, "validate_only": False, **more}
    answer = await client.ask(apis.CREATE_TOPICS, body)
    return list(answer["topics"])


def test_metadata_names_topics_partitions_and_this_broker() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for version in range(apis.METADATA.last + 1):
            body: dict[str, Any] = {"topics": [] if version == 0 else None}
            answer = await client.ask(apis.METADATA, body, version)
            assert [(one["node_id"], one["port"]) for one in answer["brokers"]] == [(1, world.port)]
            (topic,) = answer["topics"]
            assert (topic["name"], topic["error_code"]) == ("t", ErrorCode.NONE)
            assert [one["partition_index"] for one in topic["partitions"]] == [0, 1]
            assert {one["leader_id"] for one in topic["partitions"]} == {1}
            named = {"topics": [{"name": "none"}], "allow_auto_topic_creation": True}
            (topic,) = (await client.ask(apis.METADATA, named, version))["topics"]
            assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = world.broker.topics.get("t").topic_id
        by_id = {"topics": [{"name": None, "topic_id": uuid_of(topic_id)}]}
        (topic,) = (await client.ask(apis.METADATA, by_id))["topics"]
        assert topic["name"] == "t"
        by_id = {"topics": [{"name": None, "topic_id": uuid_of(topic_id + 1)}]}
        (topic,) = (await client.ask(apis.METADATA, by_id))["topics"]
        assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)


def test_a_question_creates_a_topic_only_if_that_is_set() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        body = {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}
        (topic,) = (await client.ask(apis.METADATA, body))["topics"]
        assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        body = {"topics": [{"name": "new"}, {"name": "/no"}], "allow_auto_topic_creation": True}
        topic, bad = (await client.ask(apis.METADATA, body))["topics"]
        assert (topic["error_code"], len(topic["partitions"])) == (ErrorCode.NONE, 4)
        assert bad["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert world.broker.topics.lookup("new") is not None

        (row,) = await created(world, asked("x", num_partitions=-1))
        assert row["num_partitions"] == 4

    run(scenario, {"kafka_auto_create_topics": True, "kafka_topic_partitions": 4})


def test_topics_are_created_with_the_settings_that_are_asked_for() -> None:
    async def scenario(world: KafkaWorld) -> None:
        limits = {"retention_ms": "60000", "retention_bytes": "-1", "cleanup_policy": "delete"}
        rows = await created(
            world,
            asked("a", num_partitions=3, replication_factor=3, configs=limits),
            asked("b", num_partitions=-1, configs={"magnetar_retain_unconsumed": "true"}),
            asked(
                "c",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    {"partition_index": 1, "broker_ids": [5]},
                    {"partition_index": 0, "broker_ids": [6]},
                ],
            ),
        )
        assert [one["error_code"] for one in rows] == [ErrorCode.NONE] * 3
        assert [one["num_partitions"] for one in rows] == [3, 1, 2]
        record = world.broker.topics.get("a").record
        assert (record.partitions, record.retention_ms, record.retention_bytes) == (3, 60_000, 0)
        assert record.retain_unconsumed == topic_pb2.NO
        assert world.broker.topics.get("b").record.retain_unconsumed == topic_pb2.YES
        client = await world.connect()
        resource = {"resource_type": 2, "resource_name": "a", "configuration_keys": None}
        for version in range(apis.DESCRIBE_CONFIGS.first, apis.DESCRIBE_CONFIGS.last + 1):
            (row,) = (await client.ask(apis.DESCRIBE_CONFIGS, {"resources": [resource]}, version))[
                "results"
            ]
            told = {one["name"]: one["value"] for one in row["configs"]}
            assert told["retention.ms"] == "60000"
            assert told["retention.bytes"] == "-1"
            assert told["cleanup.policy"] == "delete"
        resource["resource_name"] = "none"
        (row,) = (await client.ask(apis.DESCRIBE_CONFIGS, {"resources": [resource]}))["results"]
        assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (asked("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (asked("/x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (asked("x", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (asked("x", num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (asked("x", num_partitions=1 << 30), ErrorCode.INVALID_PARTITIONS),
        (asked("x", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            asked("x", assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (asked("x", configs={"cleanup_policy": "compact"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"cleanup_policy": "compact,delete"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"segment_bytes": "1000"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"retention_ms": "0"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"retention_ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"retention_ms": "9" * 40}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"max_message_bytes": "999999999"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"message_timestamp_type": "LogAppendTime"}), ErrorCode.INVALID_CONFIG),
        (asked("x", configs={"min_insync_replicas": "2"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_had_is_refused_with_a_sentence(topic: dict[str, Any], code: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        for is_trial in (True, False) if code == ErrorCode.INVALID_CONFIG else (False,):
            (row,) = await created(world, topic, validate_only=is_trial)
            assert row["error_code"] == code
            assert row["error_message"]
        assert world.broker.topics.lookup("x") is None

    run(scenario)


def test_a_trial_creates_nothing() -> None:
    async def scenario(world: KafkaWorld) -> None:
        rows = await created(world, asked("x"), asked("t"), validate_only=True)
        codes = [one["error_code"] for one in rows]
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert world.broker.topics.lookup("x") is None

    run(scenario)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def scenario(world: KafkaWorld) -> None:
        await created(world, asked("a"), asked("b"))
        client = await world.connect()
        answer = await client.ask(
            apis.DELETE_TOPICS, {"topic_names": ["a", "none"], "timeout": 1_000}, 5
        )
        assert [one["error_code"] for one in answer["responses"]] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        uuid = uuid_of(world.broker.topics.get("b").topic_id)
        for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            body = {"topics": [{"name": None, "topic_id": uuid}], "timeout": 1_000}
            (row,) = (await client.ask(apis.DELETE_TOPICS, body))["responses"]
            assert row["error_code"] == code
        assert [topic.name for topic in world.broker.topics.all()] == ["t"]

    run(scenario)


def test_metadata_tells_other_brokers_and_other_addresses_outside() -> None:
    async def scenario(world: KafkaWorld) -> None:
        await world.client.ask(topic_pb2.CommandCreateTopic(topic="both", partitions=2))
        members = [
            MemberAddress(
                name=one.name,
                address=one.address,
                kafka_address=f"10.0.0.{number}:9092",
                kafka_external_address=f"[fd00::{number}]:9093",
            )
            for number, one in enumerate(SEVERAL, 1)
        ]
        nodes = Nodes(lambda: members, "10.0.0.1:9092", have_fixed_shards=True)
        listener = Listener(
            KafkaConfig(),
            world.listen,
            world.clock,
            Random(3),
            CollectorRegistry(),
            nodes=nodes,
            coordinators=Coordinators(),
        )
        listener.add(world.broker.local_access)
        hosts = ([("10.0.0.1", 9092), ("10.0.0.2", 9092)], [("fd00::1", 9093), ("fd00::2", 9093)])
        for is_external, expected in enumerate(hosts):
            address = await listener.open(0, is_external=bool(is_external))
            client = await world.connect_to(address)
            answer = await client.ask(apis.METADATA, {"topics": [{"name": "both"}]})
            found = [(one["node_id"], one["host"], one["port"]) for one in answer["brokers"]]
            assert found == [(number, *one) for number, one in enumerate(expected, 1)]
            assert answer["controller_id"] == 1
            (topic,) = answer["topics"]
            assert sorted(one["leader_id"] for one in topic["partitions"]) == [1, 2]
            assert {one["error_code"] for one in topic["partitions"]} == {ErrorCode.NONE}
            assert {one["leader_epoch"] for one in topic["partitions"]} == {-1}
            told = {"include_cluster_authorized_operations": False}
            answer = await client.ask(apis.DESCRIBE_CLUSTER, told)
            assert [(one["host"], one["port"]) for one in answer["brokers"]] == expected
        # Another broker without a port, and one that has no owner now.
        members[1] = SEVERAL[1]
        answer = await client.ask(apis.METADATA, {"topics": [{"name": "both"}]})
        leaders = {one["leader_id"]: one["error_code"] for one in answer["topics"][0]["partitions"]}
        assert leaders == {1: ErrorCode.NONE, -1: ErrorCode.LEADER_NOT_AVAILABLE}
        await listener.close(grace_ms=100)

    run(scenario, brokers=SEVERAL)


def test_the_cluster_is_this_broker() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for version in (0, 1):
            answer = await client.ask(apis.DESCRIBE_CLUSTER, {}, version)
            assert [one["port"] for one in answer["brokers"]] == [world.port]
            assert answer["controller_id"] == 1
        answer = await client.ask(apis.DESCRIBE_CLUSTER, {"endpoint_type": 2})
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST

    run(scenario)


def test_coordinators_of_groups_are_found_and_ids_of_producers_differ() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for version in range(apis.FIND_COORDINATOR.last + 1):
            body: dict[str, Any] = {"key": "g", "coordinator_keys": ["g"]}
            answer = await client.ask(apis.FIND_COORDINATOR, body, version)
            rows = answer["coordinators"] if version >= 4 else [answer]
            assert rows[0]["error_code"] == ErrorCode.NONE
            assert (rows[0]["node_id"], rows[0]["port"]) == (1, world.port)
            if version:
                body["key_type"] = 1
                answer = await client.ask(apis.FIND_COORDINATOR, body, version)
                rows = answer["coordinators"] if version >= 4 else [answer]
                assert rows[0]["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        ids = set()
        for version in range(apis.INIT_PRODUCER_ID.last + 1):
            body = {"transactional_id": None, "transaction_timeout": 1}
            answer = await client.ask(apis.INIT_PRODUCER_ID, body, version)
            assert (answer["error_code"], answer["producer_epoch"]) == (ErrorCode.NONE, 0)
            ids.add(answer["producer_id"])
        assert len(ids) == apis.INIT_PRODUCER_ID.last + 1
        body["transactional_id"] = "x"
        answer = await client.ask(apis.INIT_PRODUCER_ID, body)
        assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)
