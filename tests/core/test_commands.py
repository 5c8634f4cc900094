"""The server's side of commands: each is answered once, whatever its handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.core.envelope import parsed
from tests.waiting import turns

from magnetar.testing.envelope import command, in_columns
from magnetar_core.access.grants import Rights
from magnetar_core.access.principal import ANONYMOUS
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import (
    InvalidArgument,
    MagnetarError,
    QuotaExceeded,
    Unimplemented,
    from_wire,
)
from magnetar_core.ids import MessageId
from magnetar_core.server.commands import (
    CommandSession,
    Conversation,
    Item,
    Reply,
    Run,
    each,
    send_together,
)
from magnetar_core.transport.columns.sends import Sent
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2
from magnetar_core.wire import service_pb2 as service


def refuse(error: MagnetarError, reply: Reply) -> None:
    reply.fail(error)


LOOKUP = command(topic_pb2.CommandLookup(topic="t"), 7)


def answers_of(handler: Any, asked: service.Command = LOOKUP) -> list[Any]:
    """What a client gets that asks a server which has this handler alone."""
    answers: list[Any] = []

    def write(frame: service.Frame) -> None:
        for one in frame.commands:
            assert one.request_id == 7
            answers.append(getattr(one, one.WhichOneof("body")))

    async def ask() -> None:
        session = CommandSession(
            {"lookup": each(handler)}, Conversation(write=parsed(write)), refuse
        )
        session.on_frame(service.Frame(commands=[asked]))
        await turns()

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


# A field that no command here has, of two bytes.
OF_A_LATER_VERSION = service.Command.FromString(b"\x08\x07\xfa\xff\x03\x02hi")


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (OF_A_LATER_VERSION, Unimplemented),
        (command(topic_pb2.CommandListTopics(), 7), Unimplemented),
        # What is left of a command that cannot be parsed.
        (service.Command(request_id=7), InvalidArgument),
    ],
)
def test_a_command_that_a_server_does_not_have_is_told_from_a_damaged_one(
    asked: service.Command, error: type[MagnetarError]
) -> None:
    (answer,) = answers_of(None, asked)
    assert type(from_wire(answer)) is error


class Listener:
    def __init__(self) -> None:
        self.told: list[bool] = []

    def session_writable(self, writable: bool) -> None:
        self.told.append(writable)

    def session_closed(self) -> None: ...


def test_what_is_pushed_in_one_turn_is_bounded() -> None:
    """A thousand consumers of one conversation had each a megabyte on its way in one turn."""

    async def push() -> None:
        conversation = Conversation(write=lambda _: None, push_bytes_max=3_000)
        session = CommandSession({}, conversation, refuse)
        listener = Listener()
        session.listen(listener)
        for _ in range(10):
            if session.writable:
                session.push(topic_pb2.CommandLookup(topic="x" * 1_000))
        assert listener.told == [False]
        assert not session.writable
        session.on_writable(True)
        assert listener.told == [False, True]

    asyncio.run(push())


def test_an_answer_that_no_client_takes_is_a_refusal() -> None:
    async def ask() -> list[service.Command]:
        answers: list[service.Command] = []
        huge = topic_pb2.CommandLookupResponse(broker_addresses=["x" * FRAME_BYTES_MAX])
        session = CommandSession(
            {"lookup": each(lambda _, reply: reply.send(huge))},
            Conversation(write=parsed(lambda frame: answers.extend(frame.commands))),
            refuse,
            {"lookup": lambda _: 1},
        )
        session.on_frame(service.Frame(commands=[command(topic_pb2.CommandLookup(topic="t"), 7)]))
        await turns(2)
        assert session.answer_budget.used_bytes == 0
        return answers

    (answer,) = asyncio.run(ask())
    assert answer.request_id == 7
    assert isinstance(from_wire(answer.error), QuotaExceeded)


class Runs:
    """A server that notes the runs that it gets, and fails on what it is told to."""

    def __init__(self, fails_on: str = "") -> None:
        self.runs: list[list[str]] = []
        self.answers: dict[int, Any] = {}
        self.fails_on = fails_on
        one_by_one = each(self._handle)

        def handle(run: Run) -> None:
            self.runs.append([command.topic for command, _ in run.items])
            one_by_one(run)

        handlers = {"lookup": handle, "describe_topic": handle}
        self.session = CommandSession(handlers, Conversation(write=parsed(self._take)), refuse)

    def _handle(self, command: Any, reply: Reply) -> None:
        if command.topic == self.fails_on:
            error: MagnetarError = InvalidArgument(command.topic)
            raise error
        reply.send(topic_pb2.CommandLookupResponse(topic_id=reply.request_id))

    def _take(self, frame: service.Frame) -> None:
        for one in frame.commands:
            assert one.request_id not in self.answers
            self.answers[one.request_id] = getattr(one, one.WhichOneof("body"))

    def ask(self, *bodies: Any) -> None:
        async def told() -> None:
            commands = [command(body, number) for number, body in enumerate(bodies)]
            self.session.on_frame(service.Frame(commands=commands))
            await turns()

        asyncio.run(told())


def lookups(*topics: str) -> list[topic_pb2.CommandLookup]:
    return [topic_pb2.CommandLookup(topic=topic) for topic in topics]


def test_neighbours_of_a_kind_are_a_run() -> None:
    server = Runs()
    describe = topic_pb2.CommandDescribeTopic(topic="c")
    server.ask(*lookups("a", "b"), describe, *lookups("d"))
    assert server.runs == [["a", "b"], ["c"], ["d"]]
    assert [server.answers[number].topic_id for number in range(4)] == [0, 1, 2, 3]


def test_a_command_that_fails_is_refused_alone() -> None:
    server = Runs(fails_on="b")
    server.ask(*lookups("a", "b", "c"))
    assert isinstance(from_wire(server.answers[1]), InvalidArgument)
    assert [server.answers[number].topic_id for number in (0, 2)] == [0, 2]


def test_what_a_check_refuses_is_not_in_the_run() -> None:
    server = Runs()
    server.ask(*lookups("a", "x" * 2_000, "c"))
    assert server.runs == [["a", "c"]]
    assert isinstance(from_wire(server.answers[1]), InvalidArgument)


class InColumns:
    """A server that keeps the replies to ten sends in columns, and what leaves."""

    def __init__(self, **conversation: Any) -> None:
        self.items: list[Item] = []
        self.frames: list[service.Frame] = []
        self.session = CommandSession(
            {"send": lambda run: self.items.extend(run.items)},
            Conversation(write=parsed(self.frames.append), **conversation),
            refuse,
        )

    async def ask(self) -> list[Reply]:
        sends = [
            command(broker_pb2.CommandSend(partition={"topic": "t"}, sequence_id=number), number)
            for number in range(1, 11)
        ]
        self.session.on_frame(service.Frame.FromString(in_columns(*sends)))
        await turns()
        return [reply for _, reply in self.items]

    def leave(self, replies: Sequence[Reply]) -> None:
        send_together([(one, sent(one)) for one in replies])

    @property
    def answered(self) -> list[int]:
        """The numbers of what was answered, in columns or alone."""
        commands = [one for frame in self.frames for one in frame.commands]
        numbers = [one.request_id for one in commands if one.request_id]
        for one in commands:
            numbers += one.sends_response.request_ids
        return numbers


def sent(reply: Reply) -> Sent:
    return Sent(MessageId(1, reply.request_id, 0))


def test_answers_to_columns_leave_in_columns_with_the_rights_of_their_sender() -> None:
    async def scenario() -> None:
        server = InColumns()
        rights = Rights(ANONYMOUS, ())
        admitted = [reply.admitted(rights, None) for reply in await server.ask()]
        assert {one.rights for one in admitted} == {rights}
        server.leave(admitted)
        await turns()
        ((answer,),) = (frame.commands for frame in server.frames)
        assert list(answer.sends_response.entry_ids) == list(range(1, 11))

    asyncio.run(scenario())


def test_an_answer_that_cannot_leave_keeps_no_other_back() -> None:
    """One of them was answered before; another has a listener."""

    async def scenario() -> None:
        server, heard = InColumns(), list[Any]()
        replies = await server.ask()
        replies[2].fail(InvalidArgument("early"))
        replies[4].when_answered(heard.append)
        server.leave(replies)
        await turns()
        assert sorted(server.answered) == list(range(1, 11))
        assert heard == [sent(replies[4])]
        assert all(one.answered for one in replies)

    asyncio.run(scenario())


def test_nothing_leaves_in_columns_after_the_conversation() -> None:
    async def scenario() -> None:
        server = InColumns()
        replies = await server.ask()
        server.session.on_closed()
        server.leave(replies)
        await turns()
        assert not server.frames

    asyncio.run(scenario())


def test_slow_commands_in_columns_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        now_ms = [0.0]
        server = InColumns(slow_operations=SlowOperations(100, lambda: now_ms[0]))
        replies = await server.ask()
        now_ms[0] += 90
        server.leave(replies[:5])
        assert not caplog.records
        now_ms[0] += 20
        server.leave(replies[5:])

    asyncio.run(scenario())
    (line,) = (record.getMessage() for record in caplog.records)
    assert "send of" in line
