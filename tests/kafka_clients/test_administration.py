"""Partitions and settings of topics, settings of brokers, and what tools ask of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import subscribe
from tests.kafka_clients.access_table import BROKER, TOPIC, resource
from tests.kafka_clients.harness import KafkaClient, KafkaWorld, batch, produce, run

from magnetar_core.wire import topic_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis
from magnetar_kafka.wire.apis import Api

SET, DELETE, APPEND = 0, 1, 2


async def grown(
    client: KafkaClient, count: int, *, topic: str = "t", **more: Any
) -> tuple[ErrorCode, str | None]:
    row = {"name": topic, "count": count, "assignments": None}
    body = {"topics": [{**row, **more}], "timeout": 1_000, "validate_only": False}
    (row,) = (await client.ask(apis.CREATE_PARTITIONS, body))["results"]
    return ErrorCode(row["error_code"]), row["error_message"]


def test_partitions_are_added() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        # A subscription that the topic has begins in the new partitions, too.
        for number in (0, 1):
            await world.client.ask(subscribe(number=number))
        row = {"name": "t", "count": 5, "assignments": None}
        trial = {"topics": [row], "timeout": 1_000, "validate_only": True}
        for version in range(apis.CREATE_PARTITIONS.last + 1):
            (found,) = (await client.ask(apis.CREATE_PARTITIONS, trial, version))["results"]
            assert found["error_code"] == ErrorCode.NONE
        assert world.broker.topics.get("t").record.partitions == 2
        assigned = [{"broker_ids": [1]}] * 3
        assert (await grown(client, 5, assignments=assigned))[0] == ErrorCode.NONE
        (topic,) = (await client.ask(apis.METADATA, {"topics": [{"name": "t"}]}))["topics"]
        assert [one["partition_index"] for one in topic["partitions"]] == [0, 1, 2, 3, 4]
        answer = await client.ask(apis.PRODUCE, produce(batch(b"new"), number=4))
        assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 0
        assert world.broker.topics.get("t").hosted[4].subscriptions.get("s") is not None

    run(scenario)


@pytest.mark.parametrize(
    ("count", "more", "code"),
    [
        (1, {}, ErrorCode.INVALID_PARTITIONS),
        (2, {}, ErrorCode.INVALID_PARTITIONS),
        (0, {}, ErrorCode.INVALID_PARTITIONS),
        (-5, {}, ErrorCode.INVALID_PARTITIONS),
        (1 << 30, {}, ErrorCode.INVALID_PARTITIONS),
        (4, {"assignments": [{"broker_ids": [1]}]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, {"topic": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_numbers_that_cannot_be(count: int, more: dict[str, Any], code: ErrorCode) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        found, text = await grown(client, count, **more)
        assert found == code
        assert text
        assert world.broker.topics.get("t").record.partitions == 2

    run(scenario)


def test_a_late_copy_of_more_partitions_adds_none() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        assert (await grown(client, 3))[0] == ErrorCode.NONE
        assert (await grown(client, 4))[0] == ErrorCode.NONE
        assert (await grown(client, 3))[0] == ErrorCode.INVALID_PARTITIONS
        assert world.broker.topics.get("t").record.partitions == 4

    run(scenario)


async def altered(
    client: KafkaClient, api: Api, *configs: tuple[Any, ...], name: str = "t", **more: Any
) -> tuple[ErrorCode, str | None]:
    rows = [
        {"name": key, "value": value, "config_operation": operation}
        for key, value, operation in configs
    ]
    body = {"resources": [resource(TOPIC, name, configs=rows)], "validate_only": False, **more}
    (row,) = (await client.ask(api, body))["responses"]
    return ErrorCode(row["error_code"]), row["error_message"]


async def settings(
    client: KafkaClient, kind: int = TOPIC, name: str = "t", keys: list[str] | None = None
) -> dict[str, str]:
    row = resource(kind, name, configuration_keys=keys)
    (found,) = (await client.ask(apis.DESCRIBE_CONFIGS, {"resources": [row]}))["results"]
    assert found["error_code"] == ErrorCode.NONE, found
    return {one["name"]: one["value"] for one in found["configs"]}


def test_settings_that_are_accepted_have_their_effect() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        incremental = apis.INCREMENTAL_ALTER_CONFIGS
        given = ("retention.ms", "1000", SET), ("retention.bytes", "5000", SET)
        trial = await altered(client, incremental, *given, validate_only=True)
        assert trial == (ErrorCode.NONE, None)
        assert (await settings(client))["retention.ms"] == "-1"
        assert await altered(client, incremental, *given) == (ErrorCode.NONE, None)
        keys = ["retention.ms", "retention.bytes", "cleanup.policy"]
        assert await settings(client, keys=keys) == {
            "retention.ms": "1000",
            "retention.bytes": "5000",
            "cleanup.policy": "delete",
        }
        await altered(client, incremental, ("magnetar.retain.unconsumed", "false", SET))
        await client.ask(apis.PRODUCE, produce(batch(b"old")))
        world.clock.advance(5_000)
        await world.broker._retain()
        assert world.broker.topics.get("t").hosted[0].log.first_offset == 1
        # What is not named stays; a setting that is deleted is as it was at first.
        assert await altered(client, incremental, ("retention.ms", None, DELETE))
        assert (await settings(client))["retention.ms"] == "-1"
        assert (await settings(client))["retention.bytes"] == "5000"
        # AlterConfigs sets everything.
        done = await altered(client, apis.ALTER_CONFIGS, ("retention.ms", "7", SET))
        assert done == (ErrorCode.NONE, None)
        found = await settings(client)
        assert (found["retention.ms"], found["retention.bytes"]) == ("7", "-1")

    run(scenario)


@pytest.mark.parametrize("api", [apis.INCREMENTAL_ALTER_CONFIGS, apis.ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("config", "code"),
    [
        (("cleanup.policy", "compact", SET), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", "delete", SET), ErrorCode.NONE),
        (("segment.bytes", "1000", SET), ErrorCode.INVALID_CONFIG),
        (("retention.ms", "0", SET), ErrorCode.INVALID_CONFIG),
        (("retention.ms", "soon", SET), ErrorCode.INVALID_CONFIG),
        (("retention.ms", None, SET), ErrorCode.INVALID_CONFIG),
        (("magnetar.retain.unconsumed", "perhaps", SET), ErrorCode.INVALID_CONFIG),
        (("max.message.bytes", "1000", SET), ErrorCode.INVALID_CONFIG),
    ],
)
def test_settings_without_an_effect_are_refused_by_name(
    api: Api, config: tuple[Any, ...], code: ErrorCode
) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        found, text = await altered(client, api, config)
        assert found == code
        if code:
            assert text is not None
            assert config[0] in text
        before = topic_pb2.TopicRecord()
        before.CopyFrom(world.broker.topics.get("t").record)
        # All of a topic's settings are changed, or none.
        both = ("retention.bytes", "9", SET), config
        await altered(client, api, *both)
        if code:
            assert world.broker.topics.get("t").record == before

    run(scenario)


def test_operations_and_repeats_that_are_refused() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        api = apis.INCREMENTAL_ALTER_CONFIGS
        one = ("retention.ms", "5", SET)
        assert (await altered(client, api, one, one))[0] == ErrorCode.INVALID_REQUEST
        found = await altered(client, api, ("cleanup.policy", "delete", APPEND))
        assert found[0] == ErrorCode.INVALID_CONFIG
        found = await altered(client, api, ("segment.bytes", None, DELETE))
        assert found[0] == ErrorCode.INVALID_CONFIG
        assert (await altered(client, api, one, name="none"))[0] == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    run(scenario)


def test_a_late_copy_of_settings_sets_them_again() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        api = apis.INCREMENTAL_ALTER_CONFIGS
        for value in ("5", "6", "5"):
            done = await altered(client, api, ("retention.ms", value, SET))
            assert done == (ErrorCode.NONE, None)
        assert (await settings(client))["retention.ms"] == "5"

    run(scenario)


def test_settings_of_a_broker_are_told_and_not_changed() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        found = await settings(client, BROKER, "1")
        assert found["message.max.bytes"] == str(world.broker.environment.config.batch_bytes_max)
        assert found["num.partitions"] == "7"
        assert found["auto.create.topics.enable"] == "true"
        assert found["broker.id"] == "1"
        row = resource(BROKER, "2", configuration_keys=None)
        (other,) = (await client.ask(apis.DESCRIBE_CONFIGS, {"resources": [row]}))["results"]
        assert other["error_code"] == ErrorCode.INVALID_REQUEST
        config = {"name": "num.partitions", "value": "8", "config_operation": SET}
        body = {"resources": [resource(BROKER, "1", configs=[config])], "validate_only": False}
        for api in (apis.INCREMENTAL_ALTER_CONFIGS, apis.ALTER_CONFIGS):
            (row,) = (await client.ask(api, body))["responses"]
            assert row["error_code"] == ErrorCode.INVALID_REQUEST
            assert "files" in row["error_message"]

    run(scenario, {"kafka_topic_partitions": 7, "kafka_auto_create_topics": True})


def test_sizes_of_partitions_and_acls() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(batch(b"x" * 1_000)))
        for version in range(1, apis.DESCRIBE_LOG_DIRS.last + 1):
            answer = await client.ask(apis.DESCRIBE_LOG_DIRS, {"topics": None}, version)
            (result,) = answer["results"]
            (topic,) = result["topics"]
            sizes = [one["partition_size"] for one in topic["partitions"]]
            assert sizes[0] > 1_000
            assert sizes[1] == 0
        some = {"topics": [{"topic": "t", "partitions": [1]}]}
        (result,) = (await client.ask(apis.DESCRIBE_LOG_DIRS, some))["results"]
        assert [one["partition_index"] for one in result["topics"][0]["partitions"]] == [1]
        body = {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        answer = await client.ask(apis.DESCRIBE_ACLS, body)
        assert answer["error_code"] == ErrorCode.SECURITY_DISABLED
        assert "access file" in answer["error_message"]

    run(scenario)


def test_operations_are_told_as_bits() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        body = {
            "topics": [{"name": "t"}],
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        }
        answer = await client.ask(apis.METADATA, body, 10)
        # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
        assert answer["topics"][0]["topic_authorized_operations"] == 0b1101_1111_1000
        assert answer["cluster_authorized_operations"] == 0b1101_1000_0000

    run(scenario)
