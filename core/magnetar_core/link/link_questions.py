"""Questions to a broker on its link, each answered by a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar_core.errors import LogUnavailable
from magnetar_core.link.broker_link import BrokerLink

# Takes the name of the answer's field, or "error", and the answer's message.
OnAnswer = Callable[[str, Any], None]


class LinkQuestions:
    """Questions without an answer, by request id.

    Args:
        title: what errors call the broker.
    """

    def __init__(self, link: BrokerLink, title: str) -> None:
        self._link = link
        self._title = title
        self._asked: dict[int, OnAnswer] = {}

    def ask(self, body: Any, on_answer: OnAnswer) -> int:
        """Ask, and call back with the answer; with LogUnavailable if the link is down or breaks.

        Returns:
            The number of the question, for forget().
        """
        request_id = self._link.next_request_id()
        if self._link.is_up:
            self._asked[request_id] = on_answer
            self._link.send(body, request_id)
        else:
            self._refuse(on_answer)
        return request_id

    def forget(self, request_id: int) -> None:
        """Ignore the answer to a question."""
        self._asked.pop(request_id, None)

    def forget_all(self) -> None:
        """Ignore the answers to all questions."""
        self._asked.clear()

    def on_answer(self, request_id: int, name: str, body: Any) -> bool:
        """Take an answer; return whether it answered a question."""
        on_answer = self._asked.pop(request_id, None)
        if on_answer is None:
            return False
        on_answer(name, body)
        return True

    def link_is_down(self) -> None:
        """Tell all callers that wait that no answer will come."""
        asked, self._asked = self._asked, {}
        for on_answer in asked.values():
            self._refuse(on_answer)

    def _refuse(self, on_answer: OnAnswer) -> None:
        on_answer("error", LogUnavailable(f"{self._title} is away: ask again").to_wire())
