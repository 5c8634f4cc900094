"""The errors of a playbook when a client does something unexpected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.envelope import framed
from tests.fake_link import FakeTransport
from tests.playbook import BREAK, DROP, HOLD, LOSE, Expect, NotAsPlayed, Playbook
from tests.virtual_time import run
from tests.waiting import turns

from magnetar.testing.envelope import command
from magnetar_core.errors import DiskFull
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2


class Conversation:
    """A client's end of one link to a server that greets and looks nothing up."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.answers: list[str] = []
        self.is_closed = False
        self.play = Playbook(self._handle, lambda: None)
        self.net = FakeTransport(self.play, lambda address, service: True)

    def _handle(self, link: Any, name: str, body: Any) -> Any:
        self.handled.append(name)
        return {
            "hello": common_pb2.CommandHelloResponse(),
            "lookup": topic_pb2.CommandLookupResponse(),
        }.get(name)

    def _on_frame(self, frame: service_pb2.Frame) -> None:
        self.answers += [str(one.WhichOneof("body")) for one in frame.commands]

    def _on_closed(self) -> None:
        self.is_closed = True

    async def say(self, *bodies: object) -> None:
        """Each in a frame of its own, on one link."""
        link = await self.net.connect("broker:1", "Broker", self._on_frame, self._on_closed)
        for number, body in enumerate(bodies):
            link.write(framed(command(body, number + 1)))
        await turns(4)


HELLO = common_pb2.CommandHello(client_name="test")
LOOKUP = topic_pb2.CommandLookup(topic="orders")
SEND = broker_pb2.CommandSend(sequence_id=5)


def test_the_server_does_its_part_where_nothing_else_is_said() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        await conversation.say(HELLO, LOOKUP)
        conversation.play.check()
        assert conversation.answers == ["hello_response", "lookup_response"]

    run(scenario())


@pytest.mark.parametrize(
    ("reaction", "handled", "answers", "breaks"),
    [
        (DROP, ["hello"], [], False),
        (LOSE, [], [], True),
        (BREAK, ["hello"], [], True),
        (HOLD, [], [], False),
        (DiskFull(), [], ["error"], False),
        (topic_pb2.CommandLookupResponse(), [], ["lookup_response"], False),
        (lambda body: None, ["hello"], ["hello_response"], False),
        (lambda body: DiskFull(body.client_name), [], ["error"], False),
    ],
)
def test_each_reaction(
    reaction: object, handled: list[str], answers: list[str], breaks: bool
) -> None:
    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.when("hello").once(reaction)
        await conversation.say(HELLO)
        conversation.play.check()
        assert conversation.handled == handled
        # An answer that is on its way when a link breaks does not arrive.
        assert conversation.answers == answers
        assert conversation.is_closed is breaks

    run(scenario())


def test_what_is_held_is_handled_when_it_is_released() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.when("hello", "lookup").always(HOLD)
        await conversation.say(HELLO, LOOKUP)
        await conversation.play.holds(2)
        assert conversation.handled == []
        conversation.play.release()
        assert conversation.handled == ["hello", "lookup"]

    run(scenario())


def test_places_count_from_one_and_later_cues_go_before_earlier_ones() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.when("lookup").always(DROP)
        conversation.play.when("lookup").on(1, 3, reaction=DiskFull())
        await conversation.say(LOOKUP, LOOKUP, LOOKUP, LOOKUP)
        conversation.play.check()
        assert conversation.answers == ["error", "lookup_response", "error"]

    run(scenario())


def test_a_cue_that_nothing_came_for_fails() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.when("send", sequence_id=6).once(BREAK)
        await conversation.say(HELLO, SEND)
        conversation.play.check()

    with pytest.raises(NotAsPlayed) as raised:
        run(scenario())
    assert str(raised.value).splitlines() == [
        "expected: send with sequence_id=6, 1 more of them",
        "came, the newest last:",
        '  hello client_name: "test"',
        "  send sequence_id: 5",
    ]


def test_a_scene_that_is_played_as_it_stands_passes() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.scene(Expect("lookup", topic="orders"), Expect("send", reaction=DROP))
        await conversation.say(HELLO, LOOKUP, SEND)
        conversation.play.check()

    run(scenario())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((SEND, LOOKUP), "lookup with topic='orders', line 1 of 2"),
        ((LOOKUP,), "send, line 2 of 2"),
        ((LOOKUP, SEND, SEND), "nothing more, after all 2 lines of the scene"),
    ],
)
def test_a_scene_that_is_played_otherwise_fails(said: tuple[object, ...], expected: str) -> None:
    failures: list[NotAsPlayed] = []

    async def scenario() -> None:
        conversation = Conversation()
        conversation.play.scene(Expect("lookup", topic="orders"), Expect("send", reaction=DROP))
        for one in said:
            try:
                conversation.play.on_frame(
                    await conversation.net.connect("b", "Broker", print, print),
                    service_pb2.Frame(commands=[command(one)]),
                )
            except NotAsPlayed as failure:
                failures.append(failure)
        conversation.play.check()

    with pytest.raises(NotAsPlayed) as raised:
        run(scenario())
    assert str(raised.value).startswith(f"expected: {expected}\ncame, the newest last:\n")
    assert all(one is raised.value for one in failures[-1:])


def test_waiting_for_what_does_not_come_says_what_came() -> None:
    async def scenario() -> None:
        conversation = Conversation()
        await conversation.say(HELLO)
        await conversation.play.came("end_txn", 2)

    with pytest.raises(NotAsPlayed, match=r"expected: 2 end_txn\n(.*\n)+  hello"):
        run(scenario())
