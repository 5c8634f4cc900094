"""The server's side of commands: each is answered once, whatever its handler does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.core.envelope import command

from magnetar_core.commands import CommandSession, Reply
from magnetar_core.errors import InvalidArgument, MagnetarError, from_wire
from magnetar_core.wire import common_pb2, topic_pb2
from magnetar_core.wire import service_pb2 as service


def refuse(error: MagnetarError, reply: Reply) -> None:
    reply.fail(error)


def answers_of(handler: Any) -> list[Any]:
    """What a client gets that asks this handler."""
    answers: list[Any] = []

    def write(frame: service.Frame) -> None:
        for one in frame.commands:
            assert one.request_id == 7
            answers.append(getattr(one, one.WhichOneof("body")))

    async def ask() -> None:
        session = CommandSession({"lookup": handler}, write, refuse)
        session.on_frame(service.Frame(commands=[command(topic_pb2.CommandLookup(topic="t"), 7)]))
        await asyncio.sleep(0)

    asyncio.run(ask())
    return answers


ANSWER = topic_pb2.CommandLookupResponse(topic_id=3)


def test_a_command_is_answered_once() -> None:
    """It was answered, and then refused because of what its handler did next."""

    def twice(_: object, reply: Reply) -> None:
        reply.send(ANSWER)
        with pytest.raises(AssertionError):
            reply.send(ANSWER)
        with pytest.raises(AssertionError):
            reply.fail(InvalidArgument("too late"))

    assert answers_of(twice) == [ANSWER]


@pytest.mark.parametrize("error", [RecursionError("deep"), InvalidArgument("too late")])
def test_a_handler_that_fails_after_its_answer_has_answered(error: Exception) -> None:
    def answers_and_fails(_: object, reply: Reply) -> None:
        reply.send(ANSWER)
        raise error

    assert answers_of(answers_and_fails) == [ANSWER]


def test_a_handler_that_fails_is_answered_for() -> None:
    def fails(_: object, reply: Reply) -> None:
        raise RecursionError("deep")

    (answer,) = answers_of(fails)
    assert isinstance(answer, common_pb2.ServerError)
    assert "log" in str(from_wire(answer))
