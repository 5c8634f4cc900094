"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics and of this broker.

A setting that is accepted has an effect. Settings of brokers are told, and changed by their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from magnetar_broker.local_access import LocalAccess
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import MagnetarError
from magnetar_core.wire import topic_pb2
from magnetar_kafka.answer import Answer
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.request import Handle, Request, new_token
from magnetar_kafka.requests.about_topics import access_of, answer_about
from magnetar_kafka.requests.broker_settings import described_broker
from magnetar_kafka.requests.topic_settings import (
    alter_all,
    alter_some,
    described,
    settings_of,
)
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4

# Puts the settings of a request into a command.
_Fill = Callable[[topic_pb2.CommandAlterTopic, Mapping[str, Any], int], None]


class ConfigRequests:
    """Handlers of requests about settings."""

    def __init__(self, shards: Shards, nodes: Nodes, config: KafkaConfig, random: Random) -> None:
        self._shards = shards
        self._nodes = nodes
        self._config = config
        self._random = random

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.DESCRIBE_CONFIGS.key: self._describe,
            apis.ALTER_CONFIGS.key: self._alter,
            apis.INCREMENTAL_ALTER_CONFIGS.key: self._alter_incrementally,
        }

    async def _describe(self, request: Request) -> Answer:
        directory = self._shards.directory()
        rows = [await self._described(directory, one, request) for one in request.body["resources"]]
        return answer_about("results", rows, directory)

    async def _described(
        self, directory: Shard | None, one: Mapping[str, Any], request: Request
    ) -> dict[str, Any]:
        kind, name = one["resource_type"], one["resource_name"]
        row = {"resource_type": kind, "resource_name": name, "configs": []}
        try:
            if kind == BROKER_RESOURCE:
                request.caller.check_cluster(Operation.DESCRIBE)
                self._check_own(name)
                settings = described_broker(
                    access_of(directory), self._config, self._nodes.own_number
                )
            elif kind == TOPIC_RESOURCE:
                request.caller.check(Operation.DESCRIBE, Kind.TOPIC, name)
                settings = await _described_topic(access_of(directory), name, request)
            else:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "only topics and brokers have settings here"
                )
        except (Refused, MagnetarError) as error:
            return {**row, "error_code": code_of(error), "error_message": str(error)}
        wanted = one["configuration_keys"]
        configs = [each for each in settings if wanted is None or each["name"] in wanted]
        return {**row, "error_code": ErrorCode.NONE, "configs": configs}

    def _check_own(self, name: str) -> None:
        """Check that a broker's name is this one's; empty: all brokers'.

        Raises:
            Refused: another broker knows its settings.
        """
        if name not in ("", str(self._nodes.own_number)):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._nodes.own_number}: ask broker {name[:20]} itself",
            )

    async def _alter(self, request: Request) -> Answer:
        return await self._altered_all(request, alter_all)

    async def _alter_incrementally(self, request: Request) -> Answer:
        return await self._altered_all(request, alter_some)

    async def _altered_all(self, request: Request, fill: _Fill) -> Answer:
        directory = self._shards.directory()
        rows = [
            await self._altered(directory, one, request, fill) for one in request.body["resources"]
        ]
        return answer_about("responses", rows, directory)

    async def _altered(
        self,
        directory: Shard | None,
        one: Mapping[str, Any],
        request: Request,
        fill: _Fill,
    ) -> dict[str, Any]:
        kind, name = one["resource_type"], one["resource_name"]
        row: dict[str, Any] = {"resource_type": kind, "resource_name": name, "error_message": None}
        try:
            if kind != TOPIC_RESOURCE:
                request.caller.check_cluster(Operation.ALTER)
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "settings of brokers are in their files and variables: change them there",
                )
            request.caller.check(Operation.ALTER, Kind.TOPIC, name)
            access = access_of(directory)
            command = topic_pb2.CommandAlterTopic(
                topic=name,
                dry_run=request.body["validate_only"],
                call_token=new_token(self._random),
            )
            fill(command, one, access.batch_bytes_max)
            await request.ask(access, "alter_topic", command)
        except (Refused, MagnetarError) as error:
            return {**row, "error_code": code_of(error), "error_message": str(error)}
        return {**row, "error_code": ErrorCode.NONE}


async def _described_topic(
    access: LocalAccess, name: str, request: Request
) -> list[dict[str, Any]]:
    """Return the settings of a topic, as the broker knows them by now.

    Raises:
        MagnetarError: there is no such topic, or that is not known.
    """
    found = await request.ask(access, "describe_topic", topic_pb2.CommandDescribeTopic(topic=name))
    record = topic_pb2.TopicRecord(
        retention_ms=found.retention_ms,
        retention_bytes=found.retention_bytes,
        retain_unconsumed=found.retain_unconsumed,
    )
    return [described(setting) for setting in settings_of(record, access.batch_bytes_max)]
