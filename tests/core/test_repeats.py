"""Commands that take effect once: whatever copies come, and whenever."""

from __future__ import annotations

from typing import Any

from magnetar_core.errors import LogUnavailable, MagnetarError, TopicExists
from magnetar_core.server.commands import Handler, Reply, each, run_handler
from magnetar_core.server.repeats import Repeats
from magnetar_core.wire import common_pb2
from magnetar_core.wire import topic_pb2 as pb


class Server:
    """Makes topics, whose ids count up; answers when it is told to."""

    def __init__(self, repeats: Repeats | None = None) -> None:
        self.parked: list[Reply] = []
        self.parks = False
        self.error: MagnetarError | None = None
        self.created = 0
        once = (repeats or Repeats()).once
        self._handlers: dict[str, Handler] = {
            "create_topic": once(each(self._create)),
            "delete_topic": once(each(self._delete)),
        }

    def _create(self, command: Any, reply: Reply) -> None:
        self.created += 1
        if self.error is not None:
            raise self.error
        if self.parks:
            self.parked.append(reply)
        else:
            reply.send(pb.CommandCreateTopicResponse(topic_id=self.created))

    def _delete(self, command: Any, reply: Reply) -> None:
        reply.send(pb.CommandDeleteTopicResponse())

    def ask(self, body: Any, name: str = "create_topic") -> list[Any]:
        """What is answered, now or later."""
        answers: list[Any] = []
        items = [(body, Reply(answers.append, None))]
        run_handler(self._handlers, name, items, lambda error, to: to.fail(error))
        return answers


def create(token: int) -> pb.CommandCreateTopic:
    return pb.CommandCreateTopic(topic="t", call_token=token)


def test_a_copy_gets_the_first_answer_and_does_nothing() -> None:
    server = Server()
    (first,) = server.ask(create(1))
    assert server.ask(create(1)) == [first]
    assert server.created == 1
    (second,) = server.ask(create(2))
    assert second != first


def test_a_copy_that_comes_before_the_answer_waits_for_it() -> None:
    server = Server()
    server.parks = True
    answers = [server.ask(create(1)) for _ in range(3)]
    assert answers == [[], [], []]
    server.parked[0].send(pb.CommandCreateTopicResponse(topic_id=9))
    assert answers == [[pb.CommandCreateTopicResponse(topic_id=9)]] * 3
    assert server.created == 1


def test_a_refusal_is_an_answer_unless_it_asks_to_be_asked_again() -> None:
    server = Server()
    server.error = TopicExists()
    (refusal,) = server.ask(create(1))
    server.error = LogUnavailable()
    assert server.ask(create(1)) == [refusal]
    (unavailable,) = server.ask(create(2))
    assert unavailable.code == common_pb2.LOG_UNAVAILABLE
    server.error = None
    assert isinstance(server.ask(create(2))[0], pb.CommandCreateTopicResponse)


def test_a_token_belongs_to_one_kind_of_command() -> None:
    server = Server()
    server.ask(create(1))
    (answer,) = server.ask(pb.CommandDeleteTopic(topic="t", call_token=1), "delete_topic")
    assert isinstance(answer, pb.CommandDeleteTopicResponse)


def test_without_a_token_every_copy_is_a_call() -> None:
    server = Server()
    server.ask(create(0))
    server.ask(create(0))
    assert server.created == 2


def test_the_latest_answers_are_kept_by_number_and_by_size() -> None:
    size = pb.CommandCreateTopicResponse(topic_id=1).ByteSize()
    for repeats in (Repeats(answers_max=2), Repeats(bytes_max=2 * size)):
        server = Server(repeats)
        for token in (1, 2, 3):
            server.ask(create(token))
        for token in (3, 2):
            server.ask(create(token))
        assert server.created == 3
        server.ask(create(1))
        assert server.created == 4
