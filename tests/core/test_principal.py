"""Who sends a command: the transport says so once, and every handler sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.testing.envelope import command
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.server.commands import (
    CommandServer,
    CommandSession,
    Conversation,
    Reply,
    each_of,
    run_handler,
)
from magnetar_core.server.leased import LeasedCommands
from magnetar_core.wire import service_pb2, topic_pb2

ALICE = Principal("alice")
LOOKUP = command(topic_pb2.CommandLookup(topic="t"), 1)


class Server:
    """Notes who asks."""

    def __init__(self) -> None:
        self.askers: list[Principal] = []
        self.handlers = each_of({"lookup": self.lookup})
        self.answer_sizes: dict[str, Any] = {}

    def lookup(self, _: object, reply: Reply) -> None:
        self.askers.append(reply.principal)
        reply.send(topic_pb2.CommandLookupResponse())

    def accept(self, conversation: Conversation) -> CommandSession:
        return CommandSession(self.handlers, conversation, self.refuse, self.answer_sizes)

    def refuse(self, error: Exception, reply: Reply) -> None:
        raise AssertionError(error)


def ask(server: CommandServer, conversation: Conversation) -> None:
    async def run() -> None:
        session = server.accept(conversation)
        session.on_frame(service_pb2.Frame(commands=[LOOKUP]))

    asyncio.run(run())


@pytest.mark.parametrize("leased", [False, True])
def test_a_handler_sees_who_the_transport_says_the_client_is(leased: bool) -> None:
    server = Server()
    conversation = Conversation(write=lambda _: None, principal=ALICE)
    ask(LeasedCommands(server, lambda: True) if leased else server, conversation)
    assert server.askers == [ALICE]


def test_a_unary_call_to_a_leased_shard_keeps_its_sender() -> None:
    server = Server()
    reply = Reply(lambda _: None, None, principal=ALICE)
    leased = LeasedCommands(server, lambda: True)
    run_handler(leased.handlers, "lookup", [(topic_pb2.CommandLookup(), reply)], leased.refuse)
    assert server.askers == [ALICE]


def test_a_conversation_whose_transport_says_nothing_is_anonymous() -> None:
    server = Server()
    ask(server, Conversation(write=lambda _: None))
    assert server.askers == [ANONYMOUS]
