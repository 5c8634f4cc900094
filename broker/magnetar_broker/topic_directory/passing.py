"""Passing on: a follower's commands about topics and incarnations, which the first broker decides.

They are answered when the follower's own copy has what the first broker answered.
Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_broker.environment import Environment
from magnetar_broker.replies import Replies
from magnetar_broker.topic_directory.follower import DirectoryFollower
from magnetar_broker.topics.directory import Unheard, UnheardName
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import InvalidArgument, MagnetarError, from_wire
from magnetar_core.server.commands import Handler, Reply
from magnetar_core.transport.frames import detached
from magnetar_core.wire import topic_pb2 as wire

# Commands that wait until the first broker has said whether their topic is new; larger ones, and
# those that come when so many wait, are to be sent again.
WAITING_MAX = 1_000
WAITING_BYTES_MAX = 64 << 10
# Their clients send them again, in order; a later one must not come before an earlier one.
_NEVER_WAITING = frozenset({"send", "publish"})


class DirectoryPassing:
    """Handlers of a follower."""

    def __init__(
        self, environment: Environment, topics: Topics, follower: DirectoryFollower
    ) -> None:
        self._topics = topics
        self._follower = follower
        self._replies = Replies(environment)
        self._waiting_count = 0
        self.handlers: Mapping[str, Handler] = {
            "create_topic": self._pass_on,
            "delete_topic": self._pass_on,
            "take_incarnation": self._pass_on,
            "follow_directory": self._refuse_follower,
        }

    def _refuse_follower(self, command: wire.CommandFollowDirectory, reply: Reply) -> None:
        raise InvalidArgument("this is not the first broker: it keeps no directory to follow")

    def _pass_on(self, command: Any, reply: Reply) -> None:
        self._follower.ask(detached(command), lambda name, body: self._answered(name, body, reply))

    def _answered(self, name: str, body: Any, reply: Reply) -> None:
        refusal = from_wire(body) if name == "error" else None
        if refusal is not None and refusal.retriable:
            self._replies.refuse(refusal, reply)
            return

        def on_current(error: MagnetarError | None) -> None:
            if refusal is not None:
                # Whoever hears that a topic exists goes on to use it.
                self._replies.refuse(refusal, reply)
            elif error is not None:
                self._replies.refuse(error, reply)
            else:
                self._replies.answer(reply, body)

        self._follower.catch_up(on_current)

    def patient(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return handlers that ask the first broker about what nobody has heard of here."""
        return {
            name: self._hurrying(handler) if name in _NEVER_WAITING else self._waiting(handler)
            for name, handler in handlers.items()
        }

    def _hurrying(self, handler: Handler) -> Handler:
        """Return a handler that refuses what is unheard of, and asks what is new meanwhile."""

        def handle(command: Any, reply: Reply) -> None:
            try:
                handler(command, reply)
            except Unheard as error:
                self._follower.hurry()
                if not isinstance(error, UnheardName) or not self._follower.is_current:
                    raise
                # A send by name alone would come again for ever: it is denied without asking.
                self._handle_told(handler, command, reply)

        return handle

    def _waiting(self, handler: Handler) -> Handler:
        """Return a handler whose commands wait, if they name what is unheard of."""

        def handle(command: Any, reply: Reply) -> None:
            try:
                handler(command, reply)
            except Unheard:
                is_full = self._waiting_count >= WAITING_MAX
                if is_full or command.ByteSize() > WAITING_BYTES_MAX:
                    self._follower.hurry()
                    raise
                self._wait(handler, command, reply)

        return handle

    def _wait(self, handler: Handler, command: Any, reply: Reply) -> None:
        waiting = detached(command)
        self._waiting_count += 1

        def on_current(error: MagnetarError | None) -> None:
            self._waiting_count -= 1
            if error is not None:
                self._replies.refuse(error, reply)
            else:
                self._replies.handle(partial(self._handle_told, handler), waiting, reply)

        self._follower.catch_up(on_current)

    def _handle_told(self, handler: Handler, command: Any, reply: Reply) -> None:
        """Handle a command, and deny what is not known here."""
        with self._topics.complete():
            handler(command, reply)
