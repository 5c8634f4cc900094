"""The server's side of commands: a table of handlers, and replies that may leave later.

A server is one `CommandServer`; both the streaming and the unary forms of a command end in the same
handler. Handlers are plain functions: they decide and apply at once, and answer through a `Reply`
that they may park until the records behind it are durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from magnetar_core.answers import AnswerBudget
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import InternalError, InvalidArgument, MagnetarError, QuotaExceeded
from magnetar_core.frames import Carried, FrameWriter
from magnetar_core.texts import check_texts
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)


class Reply:
    """One request's answer: send or fail, once. Harmless after the conversation has ended."""

    __slots__ = ("_on_answer", "_respond", "answered", "origin", "request_id", "session")

    def __init__(
        self,
        respond: Callable[[Any], None],
        session: CommandSession | None,
        origin: str = "",
        request_id: int = 0,
    ) -> None:
        self._respond = respond
        self._on_answer: Callable[[Any], None] | None = None
        self.answered = False
        # None for a unary call: it cannot be pushed to, and holds nothing.
        self.session = session
        # The machine that asks, as far as the transport knows it.
        self.origin = origin
        # Its client's number for it, within the conversation.
        self.request_id = request_id

    def send(self, body: Any) -> None:
        self._give(body)

    def fail(self, error: MagnetarError) -> None:
        self._give(error.to_wire())

    def repeat(self, answer: Any) -> None:
        """Give the answer, or the error, that another copy of the command was given."""
        self._give(answer)

    def when_answered(self, callback: Callable[[Any], None]) -> None:
        """Call back with the answer, or the error, when it leaves. For one listener."""
        assert self._on_answer is None
        self._on_answer = callback

    def _give(self, answer: Any) -> None:
        assert not self.answered, "a command is answered once"
        self.answered = True
        try:
            self._respond(answer)
        except MagnetarError as error:
            answer = error.to_wire()
            self._respond(answer)
        except Exception:
            log.exception("an answer could not be written")
            answer = internal_failure().to_wire()
            self._respond(answer)
        if self._on_answer is not None:
            self._on_answer(answer)


def check_answer(answer: Any) -> int:
    """An answer's size. Raises: QuotaExceeded, when it is more than any client takes."""
    size: int = answer.ByteSize()
    if size > FRAME_BYTES_MAX:
        raise QuotaExceeded(
            f"the answer has {size} bytes, and a frame {FRAME_BYTES_MAX} at most: ask for less"
        )
    return size


# A handler gets the command's message and its reply; a MagnetarError that it raises is sent.
Handler = Callable[[Any, Reply], None]
# How large the answers may become of those commands that have large ones, by the command's field.
AnswerSizes = Mapping[str, Callable[[Any], int]]


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
        answer_sizes: AnswerSizes | None = None,
    ) -> None:
        self._handlers = handlers
        self._writer = FrameWriter(write)
        self._on_error = on_error
        self._answer_sizes = answer_sizes or {}
        self.closed = False
        self.client_name = ""
        # The machine at the other end, as far as the transport knows it.
        self.origin = ""
        # What the client has not taken yet; the transport says how much that may be.
        self.answers = AnswerBudget(1 << 62)
        # With more gathered in one turn, no more is pushed until the client has taken some of it.
        self.push_bytes_max = 1 << 62
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
        if self.closed:
            return
        self._writer.send(body)
        if self.writable and self._writer.gathered_bytes > self.push_bytes_max:
            # The transport finds it queued, and says when there is room again.
            self.on_writable(False)

    def on_frame(self, frame: Carried) -> None:
        self.handle(frame.commands)

    def handle(self, requests: Sequence[pb.Command], start: int = 0) -> int:
        """Handle commands from the start-th on.

        Returns:
            Where it stopped: at one whose answer there is no room for, or at the end.
        """
        for place in range(start, len(requests)):
            if not self._handle(requests[place]):
                return place
        return len(requests)

    def on_closed(self) -> None:
        self.closed = True
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener.session_closed()

    def on_writable(self, writable: bool) -> None:
        if writable == self.writable:
            return
        self.writable = writable
        for listener in list(self._listeners):
            listener.session_writable(writable)

    def _handle(self, request: pb.Command) -> bool:
        name = request.WhichOneof("body")
        size_of = self._answer_sizes.get(name) if name is not None else None
        reserved = size_of(getattr(request, name)) if size_of is not None and name else 0
        if reserved and not self.answers.take(reserved):
            return False
        request_id = request.request_id

        def respond(body: Any) -> None:
            if not self.closed:
                self._writer.send(body, request_id, check_answer(body) if reserved else 0)
            if reserved:
                # Behind the writer's flush: from then on the transport counts it.
                asyncio.get_running_loop().call_soon(self.answers.give_back, reserved)

        reply = Reply(respond, self, self.origin, request_id)
        run_handler(self._handlers, name, request, reply, self._on_error)
        return True


def run_handler(
    handlers: Mapping[str, Handler],
    name: str | None,
    request: pb.Command,
    reply: Reply,
    on_error: Callable[[MagnetarError, Reply], None],
) -> None:
    """Find and call a command's handler; whatever it raises becomes the reply."""
    if name is None:
        reply.fail(
            InvalidArgument(
                "the command cannot be read: this version does not know it, it is too large for"
                " its kind, or a text in it is not UTF-8"
            )
        )
        return
    handler = handlers.get(name)
    if handler is None:
        reply.fail(InvalidArgument(f"this server does not answer the command {name!r}"))
        return
    try:
        body = getattr(request, name)
        check_texts(body)
        handler(body, reply)
    except Exception as error:
        if reply.answered:
            log.exception("handler of %s failed after its answer", name)
        elif isinstance(error, MagnetarError):
            on_error(error, reply)
        else:
            log.exception("handler of %s failed", name)
            reply.fail(internal_failure())


def internal_failure() -> InternalError:
    """What a client is told of a bug here; the log says the rest."""
    return InternalError("the server failed on this command; its log says how")
