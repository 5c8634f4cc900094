"""Answers that leave together: all those to the commands of a message in columns, but for some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from magnetar_core.transport.columns.column import AnswerColumns, Answers
from magnetar_core.transport.columns.kinds import as_message


class Asked(Protocol):
    """A command of the message, by its place in it."""

    @property
    def place(self) -> int:
        """Return the place."""
        ...

    @property
    def request_id(self) -> int:
        """Return the number of the request."""
        ...


class AnsweredTogether:
    """Answers to the commands of a message in columns.

    They leave when all commands are answered, or else at the end of the turn in which the first one
    has succeeded: no answer waits for a command that waits for longer. A refusal leaves alone.

    Args:
        count: how many commands the message has.
        send: sends an answer with the number of the request; 0: it answers several.
    """

    __slots__ = (
        "_answers",
        "_first_request_id",
        "_has_left",
        "_is_leaving",
        "_kind",
        "_open_count",
        "_send",
    )

    def __init__(
        self,
        kind: AnswerColumns,
        first_request_id: int,
        count: int,
        send: Callable[[Any, int], None],
    ) -> None:
        self._kind = kind
        self._send = send
        self._first_request_id = first_request_id
        self._open_count = count
        self._is_leaving = self._has_left = False
        # By place; None: none yet, or a refusal.
        self._answers: list[Any] = [None] * count

    def answer(self, reply: Asked, body: Any) -> None:
        """Answer a command."""
        self._open_count -= 1
        if self._has_left or type(body) is not self._kind.row:
            self._send(as_message(body), reply.request_id)
        else:
            self._answers[reply.place] = body
            if self._open_count and not self._is_leaving:
                self._is_leaving = True
                asyncio.get_running_loop().call_soon(self._leave)
        if not self._open_count:
            self._leave()

    def answer_all(self, answers: Sequence[tuple[Asked, Any]]) -> None:
        """Answer several commands, each with a row."""
        if self._has_left or len(answers) < self._open_count:
            for reply, body in answers:
                self.answer(reply, body)
            return
        for reply, body in answers:
            self._answers[reply.place] = body
        self._open_count = 0
        self._leave()

    def _leave(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        answers, self._answers = self._answers, []
        rows = [one for one in answers if one is not None]
        left_out: list[int] = []
        if len(rows) < len(answers):
            left_out = [place for place, one in enumerate(answers) if one is None]
        told = Answers(self._first_request_id, len(answers), left_out, rows)
        self._send(self._kind.pack(told), 0)
