"""A member without a shard says where everything is, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.core.envelope import parsed

from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.member_commands import MemberCommands
from magnetar_core.errors import (
    ClusterMismatch,
    LogUnavailable,
    UnsupportedVersion,
    from_wire,
)
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.server.commands import Conversation
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2

CONFIG = BrokerConfig(
    name="broker-0",
    address="10.0.0.1:6650",
    external_address="out:1",
    brokers=tuple(MemberAddress(name=f"broker-{one}", address="") for one in range(2)),
    coordinators=(MemberAddress(name="coordinator-0", address=""),),
    cluster_id="orders",
    cluster_hash="abc",
)


class Owners:
    def find(self, member: MemberAddress) -> MemberAddress:
        number = member.name[-1]
        return replace(member, address=f"in:2#{number}.17", external_address=f"out:2#{number}.17")


def ask(body: Any) -> service_pb2.Command:
    async def scenario() -> service_pb2.Command:
        frames: list[service_pb2.Frame] = []
        own = ClusterResponses(CONFIG, Owners(), "member-a")
        session = MemberCommands(own, MEMBERSHIP_REFUSALS).accept(
            Conversation(write=parsed(frames.append))
        )
        request = service_pb2.Command(request_id=1)
        getattr(request, FIELD_OF_BODY[type(body)]).CopyFrom(body)
        session.handle([request])
        session._writer.flush()
        (frame,) = frames
        (answer,) = frame.commands
        return answer

    return asyncio.run(scenario())


def test_it_greets_under_its_own_name() -> None:
    hello = common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION, client_name="c")
    greeted = ask(hello).hello_response
    assert (greeted.server_name, greeted.cluster_id, greeted.cluster_hash) == (
        "member-a",
        "orders",
        "abc",
    )


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        (
            common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION, cluster_hash="x"),
            ClusterMismatch,
        ),
        (common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION + 99), UnsupportedVersion),
    ],
)
def test_strangers_are_refused(hello: common_pb2.CommandHello, error: type[Exception]) -> None:
    assert isinstance(from_wire(ask(hello).error), error)


@pytest.mark.parametrize(
    ("reached_at", "host"), [("", "in"), ("out:1#1.3", "out"), ("out:1", "out")]
)
def test_it_knows_where_all_shards_are(reached_at: str, host: str) -> None:
    info = ask(topic_pb2.CommandGetClusterInfo(reached_at=reached_at)).get_cluster_info_response
    assert [(broker.name, broker.address) for broker in info.brokers] == [
        ("broker-0", f"{host}:2#0.17"),
        ("broker-1", f"{host}:2#1.17"),
    ]
    assert [one.address for one in info.coordinators] == [f"{host}:2#0.17"]


@pytest.mark.parametrize(
    "body",
    [
        topic_pb2.CommandLookup(topic="t"),
        broker_pb2.CommandSend(),
        topic_pb2.CommandListTopics(),
    ],
)
def test_all_else_is_asked_elsewhere(body: Any) -> None:
    error = from_wire(ask(body).error)
    assert isinstance(error, LogUnavailable)
    assert "ask another one" in str(error)
