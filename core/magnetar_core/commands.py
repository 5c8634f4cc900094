"""The server's side of commands: a table of handlers, and replies that may leave later.

A server is one `CommandServer`; both the streaming and the unary forms of a command end in the same
handler. Handlers are plain functions: they decide and apply at once, and answer through a `Reply`
that they may park until the records behind it are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import InternalError, InvalidArgument, MagnetarError
from magnetar_core.frames import Carried, FrameWriter
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)


class Reply:
    """One request's answer: send or fail, once. Harmless after the conversation has ended."""

    __slots__ = ("_respond", "answered", "session")

    def __init__(self, respond: Callable[[Any], None], session: CommandSession | None) -> None:
        self._respond = respond
        self.answered = False
        # None for a unary call: it cannot be pushed to, and holds nothing.
        self.session = session

    def send(self, body: Any) -> None:
        self._give(body)

    def fail(self, error: MagnetarError) -> None:
        self._give(error.to_wire())

    def _give(self, answer: Any) -> None:
        assert not self.answered, "a command is answered once"
        self.answered = True
        self._respond(answer)


# A handler gets the command's message and its reply; a MagnetarError that it raises is sent.
Handler = Callable[[Any, Reply], None]


class SessionListener(Protocol):
    """Who pushes to a conversation, and has to know how it fares."""

    def session_writable(self, writable: bool) -> None:
        """Push no more for now, or go on."""
        ...

    def session_closed(self) -> None: ...


class CommandSession:
    """One conversation with a client, at the server."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        write: Callable[[pb.Frame], None],
        on_error: Callable[[MagnetarError, Reply], None],
    ) -> None:
        self._handlers = handlers
        self._writer = FrameWriter(write)
        self._on_error = on_error
        self.closed = False
        self.client_name = ""
        # A larger frame ends the conversation.
        self.frame_bytes_max = FRAME_BYTES_MAX
        # Whether there is room for what was not asked for.
        self.writable = True
        self._listeners: dict[SessionListener, None] = {}

    def listen(self, listener: SessionListener) -> None:
        """Tell it how the conversation fares, until unlisten()."""
        self._listeners[listener] = None

    def unlisten(self, listener: SessionListener) -> None:
        self._listeners.pop(listener, None)

    def push(self, body: Any) -> None:
        """Send something that was not asked for."""
        if not self.closed:
            self._writer.send(body)

    def on_frame(self, frame: Carried) -> None:
        for request in frame.commands:
            self._handle(request)

    def on_closed(self) -> None:
        self.closed = True
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener.session_closed()

    def on_writable(self, writable: bool) -> None:
        self.writable = writable
        for listener in list(self._listeners):
            listener.session_writable(writable)

    def _handle(self, request: pb.Command) -> None:
        request_id = request.request_id
        name = request.WhichOneof("body")

        def respond(body: Any) -> None:
            if not self.closed:
                self._writer.send(body, request_id)

        run_handler(self._handlers, name, request, Reply(respond, self), self._on_error)


def run_handler(
    handlers: Mapping[str, Handler],
    name: str | None,
    request: pb.Command,
    reply: Reply,
    on_error: Callable[[MagnetarError, Reply], None],
) -> None:
    """Find and call a command's handler; whatever it raises becomes the reply."""
    handler = handlers.get(name) if name is not None else None
    if name is None or handler is None:
        reply.fail(InvalidArgument(f"this server does not answer the command {name!r}"))
        return
    try:
        handler(getattr(request, name), reply)
    except Exception as error:
        if reply.answered:
            log.exception("handler of %s failed after its answer", name)
        elif isinstance(error, MagnetarError):
            on_error(error, reply)
        else:
            log.exception("handler of %s failed", name)
            reply.fail(InternalError("the server failed on this command; its log says how"))
