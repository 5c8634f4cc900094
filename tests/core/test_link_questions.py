"""Questions on a link: each is answered once, or refused when the link is away."""

from __future__ import annotations

from typing import Any, cast

from magnetar_core.link.broker_link import BrokerLink
from magnetar_core.link.link_questions import LinkQuestions
from magnetar_core.wire import common_pb2, topic_pb2

BODY = topic_pb2.CommandListTopics()
ANSWER = topic_pb2.CommandListTopicsResponse()


class FakeLink:
    def __init__(self) -> None:
        self.is_up = True
        self.sent: list[int] = []
        self._count = 0

    def next_request_id(self) -> int:
        self._count += 1
        return self._count

    def send(self, body: Any, request_id: int) -> None:
        self.sent.append(request_id)


def ask(questions: LinkQuestions, heard: list[tuple[str, Any]]) -> int:
    return questions.ask(BODY, lambda name, body: heard.append((name, body)))


def made() -> tuple[FakeLink, LinkQuestions, list[tuple[str, Any]]]:
    link = FakeLink()
    return link, LinkQuestions(cast("BrokerLink", link), "broker-1"), []


def test_a_question_is_answered_once() -> None:
    link, questions, heard = made()
    number = ask(questions, heard)
    assert link.sent == [number]
    assert not questions.on_answer(number + 1, "list_topics_response", ANSWER)
    assert questions.on_answer(number, "list_topics_response", ANSWER)
    assert not questions.on_answer(number, "list_topics_response", ANSWER)
    assert heard == [("list_topics_response", ANSWER)]


def test_nothing_is_left_open_when_the_link_breaks() -> None:
    link, questions, heard = made()
    ask(questions, heard)
    link.is_up = False
    questions.link_is_down()
    ask(questions, heard)
    assert len(link.sent) == 1
    for name, body in heard:
        assert name == "error"
        assert body.code == common_pb2.LOG_UNAVAILABLE
        assert body.message == "broker-1 is away: ask again"
    assert len(heard) == 2


def test_what_is_forgotten_is_told_nobody() -> None:
    _, questions, heard = made()
    questions.forget(ask(questions, heard))
    ask(questions, heard)
    questions.forget_all()
    questions.link_is_down()
    assert heard == []
