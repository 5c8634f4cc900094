"""Commands that take effect once: a copy gets the first copy's answer, and does nothing.

A client repeats a call when its link breaks. The first copy may then arrive after the call was
answered, and after others have acted upon the answer: a late copy of a deletion would delete a
topic that was created anew. So such commands carry a random `call_token`, which is the same in all
copies of a call.

Tokens are kept in memory. A copy travels on a link to this process and does not outlive it; a call
that a client repeats after a restart has had no answer yet.
Source: docs/design/0001-protocol.md, Late copies.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from magnetar_core.errors import from_wire
from magnetar_core.server.commands import Handler, Reply, Run
from magnetar_core.transport.spliced import byte_count_of
from magnetar_core.wire import common_pb2

# How many answers are kept; they are small.
ANSWERS_MAX = 10_000
ANSWERS_BYTES_MAX = 16 << 20

Key = tuple[type, int]


class Repeats:
    """Calls that a server has answered lately, or is about to answer."""

    def __init__(
        self, *, answers_max: int = ANSWERS_MAX, bytes_max: int = ANSWERS_BYTES_MAX
    ) -> None:
        self._answers_max = answers_max
        self._bytes_max = bytes_max
        # Answers in the order in which they left.
        self._answers: dict[Key, Any] = {}
        self._bytes = 0
        # Copies that came before the answer left.
        self._waiting: dict[Key, list[Reply]] = {}

    def once(self, handler: Handler) -> Handler:
        """Wrap the handler of a command with a call_token, so that it runs once per call.

        A retriable refusal is forgotten: the next copy of the call is a new attempt.
        """

        def handle(run: Run) -> None:
            first = [item for item in run.items if self._is_first(*item)]
            if first:
                handler(Run(first, run.failed))

        return handle

    def _is_first(self, command: Any, reply: Reply) -> bool:
        """Return whether a command is the first copy of its call; answer later copies."""
        if not command.call_token:
            return True
        key = (type(command), command.call_token)
        if key in self._answers:
            reply.repeat(self._answers[key])
            return False
        if key in self._waiting:
            self._waiting[key].append(reply)
            return False
        self._waiting[key] = []
        reply.when_answered(partial(self._answered, key))
        return True

    def _answered(self, key: Key, answer: Any) -> None:
        copies = self._waiting.pop(key)
        if not (isinstance(answer, common_pb2.ServerError) and from_wire(answer).retriable):
            self._keep(key, answer)
        for copy in copies:
            copy.repeat(answer)

    def _keep(self, key: Key, answer: Any) -> None:
        self._answers[key] = answer
        self._bytes += byte_count_of(answer)
        while len(self._answers) > self._answers_max or self._bytes > self._bytes_max:
            oldest = self._answers.pop(next(iter(self._answers)))
            self._bytes -= byte_count_of(oldest)
