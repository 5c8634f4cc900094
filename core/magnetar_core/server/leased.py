"""Leased answers: frames in the name of a shard leave only while its lease lasts.

A server may sleep at any instruction, and wake up when others have long had its shard. So the lease
is looked at when a frame leaves, after everything that the frame says was read. A frame that is
held back ends the conversation for good: parts of it are missing.
Source: docs/design/0009-owners.md, Zombies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandServer,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    Run,
)
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import Link, LinkClosed, Transport

log = logging.getLogger(__name__)

_SILENT = "the server's lease is not renewed, and another one may have the shard; ask again"


class LeasedCommands:
    """Commands of a shard that answers only while the lease lasts.

    Args:
        may_speak: whether the lease lasts.
    """

    def __init__(self, commands: CommandServer, may_speak: Callable[[], bool]) -> None:
        self._commands = commands
        self._may_speak = may_speak

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, for unary calls. Keys are names of command fields in the envelope."""
        return _LeasedHandlers(self._commands.handlers, self._leased)

    @property
    def answer_sizes(self) -> AnswerSizes:
        """The largest sizes of answers."""
        return self._commands.answer_sizes

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation.

        Raises:
            LogUnavailable: the lease does not last.
        """
        if not self._may_speak():
            raise LogUnavailable(_SILENT)
        muted = False

        def write_leased(frame: bytes) -> None:
            nonlocal muted
            if not muted and self._may_speak():
                conversation.write(frame)
            elif not muted:
                muted = True
                log.warning("a conversation ends: the lease was not renewed in time")
                conversation.end()

        return self._commands.accept(replace(conversation, write=write_leased))

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send an error to a unary call."""
        self._commands.refuse(error, self._leased(reply))

    def _leased(self, reply: Reply) -> Reply:
        """Return a reply that gives its answer to another one while the lease lasts."""

        def respond(answer: Any) -> None:
            if self._may_speak():
                reply.repeat(answer)
            else:
                reply.fail(LogUnavailable(_SILENT))

        return reply.through(respond)


class _LeasedHandlers(Mapping[str, Handler]):
    """Handlers whose answers leave only while the lease lasts."""

    def __init__(self, handlers: Mapping[str, Handler], leased: Callable[[Reply], Reply]) -> None:
        self._handlers = handlers
        self._leased = leased

    def __getitem__(self, name: str) -> Handler:
        handler = self._handlers[name]
        return lambda run: handler(
            Run([(body, self._leased(reply)) for body, reply in run.items], run.failed)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


class LeasedTransport:
    """Transport of a shard to other servers: its frames leave only while the lease lasts.

    Args:
        may_speak: whether the lease lasts.
    """

    def __init__(self, transport: Transport, may_speak: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_speak = may_speak

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> Link:
        """Open a conversation.

        Raises:
            LinkClosed: the lease does not last, or no server answers there.
        """
        if not self._may_speak():
            raise LinkClosed(_SILENT)
        link = await self._transport.connect(address, service, on_frame, on_closed)
        return _LeasedLink(link, self._may_speak)

    async def close(self) -> None:
        """End all conversations."""
        await self._transport.close()


class _LeasedLink:
    """Client's end of a conversation, which ends with what would leave too late."""

    def __init__(self, link: Link, may_speak: Callable[[], bool]) -> None:
        self._link = link
        self._may_speak = may_speak
        self._muted = False

    def write(self, frame: bytes) -> None:
        """Queue a frame; end the conversation if the lease does not last."""
        if not self._muted and self._may_speak():
            self._link.write(frame)
        elif not self._muted:
            self._muted = True
            self._link.close()

    async def drain(self) -> None:
        """Wait while too much is queued."""
        await self._link.drain()

    def close(self) -> None:
        """End the conversation."""
        self._link.close()
