"""Answers that leave together: all those to the commands of a message in columns, but for some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from magnetar_core.transport.columns.answers import AnswerColumns, Answers
from magnetar_core.transport.columns.kinds import as_message


class AnsweredTogether:
    """Answers to the commands of a message in columns.

    They leave when all commands are answered, or else at the end of the turn in which the first one
    has succeeded: no answer waits for a command that waits for longer. A refusal leaves alone.

    Args:
        send: sends an answer with the number of the request; 0: it answers several.
    """

    __slots__ = ("_answers", "_has_left", "_kind", "_open_count", "_request_ids", "_send")

    def __init__(
        self, kind: AnswerColumns, request_ids: Sequence[int], send: Callable[[Any, int], None]
    ) -> None:
        self._kind = kind
        self._request_ids = request_ids
        self._send = send
        self._open_count = len(request_ids)
        self._has_left = False
        # By place; None: none yet, or a refusal. Empty: none has succeeded.
        self._answers: list[Any] = []

    def answer(self, place: int, body: Any) -> None:
        """Answer the command at a place of the message."""
        self._open_count -= 1
        if self._has_left or type(body) is not self._kind.row:
            self._send(as_message(body), self._request_ids[place])
        else:
            if not self._answers:
                self._answers = [None] * len(self._request_ids)
                if self._open_count:
                    asyncio.get_running_loop().call_soon(self._leave)
            self._answers[place] = body
        if not self._open_count:
            self._leave()

    def _leave(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        request_ids, answers = self._request_ids, self._answers
        rows = [one for one in answers if one is not None]
        left_out = [place for place, one in enumerate(answers) if one is None]
        if not answers:
            left_out = list(range(len(request_ids)))
        self._answers = []
        told = Answers(request_ids[0], len(request_ids), left_out, rows)
        self._send(self._kind.pack(told), 0)
