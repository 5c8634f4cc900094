"""A conversation may finish its work, also when its rights were withdrawn meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

from magnetar.testing.envelope import command
from magnetar_core.access.policy import Policy, parse_policy
from magnetar_core.access.principal import Principal
from magnetar_core.access.rules import RULES
from magnetar_core.errors import AuthorizationFailed, MagnetarError
from magnetar_core.gates.audit import AuditLog
from magnetar_core.gates.gate import AccessGate
from magnetar_core.server.commands import CommandSession, Complaint, Conversation, Reply, each
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2, service_pb2

READER = """
[principals]
alice = "reader"
[[roles.reader]]
topic = "topic"
allow = "READ"
[[roles.reader]]
group = "group"
allow = "READ"
"""
SUBSCRIPTION = common.Subscription(topic="topic", subscription="group")
OTHER = common.Subscription(topic="topic", subscription="other")
FINISHING = (
    wire.CommandAck(subscription=SUBSCRIPTION),
    wire.CommandNack(subscription=SUBSCRIPTION),
    wire.CommandCloseConsumer(subscription=SUBSCRIPTION),
    group_pb2.CommandLeaveGroup(group="group"),
)
BEGINNING = (
    wire.CommandSubscribe(subscription=SUBSCRIPTION),
    wire.CommandFlow(subscription=SUBSCRIPTION),
    wire.CommandSeek(subscription=SUBSCRIPTION),
    wire.CommandRead(partition=common.Partition(topic="topic")),
    group_pb2.CommandJoinGroup(group="group", topics=["topic"]),
)


class Scene:
    """Conversations of alice with a server that notes what reaches its handlers."""

    def __init__(self) -> None:
        self.policy: Policy = parse_policy(READER)
        self.gate = gate_of(lambda: self.policy)
        self.handled: list[Any] = []
        # Of the last command that was handled.
        self.complaint: Complaint | None = None

    def withdraw(self) -> None:
        self.policy = parse_policy("")

    def converse(self) -> CommandSession:
        session = CommandSession(
            dict.fromkeys(RULES, each(self._handle)),
            Conversation(write=lambda _: None, principal=Principal("alice"), gate=self.gate),
            lambda _, __: None,
        )
        return session

    def reaches(self, session: CommandSession, body: Any) -> bool:
        count = len(self.handled)
        session.on_frame(service_pb2.Frame(commands=[command(body, 1)]))
        return len(self.handled) > count

    def _handle(self, body: Any, reply: Reply) -> None:
        self.handled.append(body)
        self.complaint = reply.complaint


def gate_of(policy: Callable[[], Policy]) -> AccessGate:
    return AccessGate(policy, AuditLog(lambda _: None, lambda: 0), lambda: 0.0)


def test_what_was_begun_is_finished_and_nothing_else_is() -> None:
    async def run() -> None:
        scene = Scene()
        session, stranger = scene.converse(), scene.converse()
        for body in (*BEGINNING, *FINISHING):
            assert scene.reaches(session, body), body
        scene.withdraw()
        for body in FINISHING:
            assert scene.reaches(session, body), body
            # Another conversation has begun nothing.
            assert not scene.reaches(stranger, body), body
        for body in BEGINNING:
            assert not scene.reaches(session, body), body
        assert not scene.reaches(session, wire.CommandAck(subscription=OTHER))

    asyncio.run(run())


def test_a_refused_beginning_begins_nothing() -> None:
    async def run() -> None:
        scene = Scene()
        session = scene.converse()
        assert not scene.reaches(session, wire.CommandSubscribe(subscription=OTHER))
        assert not scene.reaches(session, wire.CommandAck(subscription=OTHER))

    asyncio.run(run())


def test_a_right_that_is_withdrawn_while_a_beginning_is_looked_at_counts_no_more() -> None:
    """The file may be read again between two looks at it."""

    async def run() -> None:
        scene = Scene()
        policies = chain([scene.policy], repeat(parse_policy("")))
        scene.gate = gate_of(lambda: next(policies))
        session = scene.converse()
        assert scene.reaches(session, BEGINNING[0])
        ended: list[MagnetarError] = []
        session.while_allowed("it", scene.complaint, ended.append)
        session.look()
        assert [type(one) for one in ended] == [AuthorizationFailed]

    asyncio.run(run())
