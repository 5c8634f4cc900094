"""Server side of commands: a table of handlers, and replies that may leave later.

A server is a `CommandServer`. The streaming and the unary form of a command end in the same
handler. Handlers are plain functions: they decide and apply at once, and answer through a `Reply`,
which they may park until the records behind it are durable.

A handler gets a run: commands of one kind that stand next to each other in a frame. So the cost of
a lookup, or of parking an answer, is paid once for all of them. A unary call is a run of one.

A handler knows one form of each command: rows for kinds that have columns, also if the command came
alone. It answers with rows as well, which leave in columns if the command came in columns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple, Protocol, Self

from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar_core.access.grants import Rights
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import (
    InternalError,
    InvalidArgument,
    MagnetarError,
    QuotaExceeded,
    Unimplemented,
)
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.server.answered_together import AnsweredTogether
from magnetar_core.server.texts import check_texts
from magnetar_core.traces.spans import ServerTraces, Span
from magnetar_core.transport.answer_budget import AnswerBudget
from magnetar_core.transport.columns.column import Columns
from magnetar_core.transport.columns.kinds import COLUMNS, as_message, as_row
from magnetar_core.transport.frames import Carried, FrameWriter
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.transport.spliced import byte_count_of
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)


# Returns why a sender may no longer do something; None: it still may.
Complaint = Callable[[], MagnetarError | None]


class Desk:
    """Place at which the commands of a run are answered: it knows who asked, and how answers leave.

    A run has one. A reply that differs from those beside it has its own.

    Args:
        respond: takes a reply and its answer.
        respond_in_columns: takes several replies and their answers, rows of one kind; None: they
            leave one by one.
    Attributes:
        session: None for a unary call: it takes no pushes and owns no consumers.
        origin: the client's machine, as far as the transport knows it.
        principal: who sends the commands.
        rights: what the sender may do; None: there is no access control.
        complaint: checks after the answer whether the sender still has the right to what a command
            began; None: there is no access control.
    """

    __slots__ = (
        "_admitted",
        "_answered",
        "_listeners",
        "_respond",
        "_respond_in_columns",
        "complaint",
        "origin",
        "principal",
        "rights",
        "session",
    )

    def __init__(
        self,
        respond: Callable[[Reply, Any], None],
        session: CommandSession | None,
        origin: str,
        principal: Principal,
        rights: Rights | None = None,
        complaint: Complaint | None = None,
        respond_in_columns: Callable[[Sequence[Answer]], None] | None = None,
    ) -> None:
        self._respond = respond
        self._respond_in_columns = respond_in_columns
        self._answered: set[int] = set()
        self._listeners: dict[int, Callable[[Any], None]] = {}
        # The desk of those commands here that were admitted last.
        self._admitted: Desk | None = None
        self.session = session
        self.origin = origin
        self.principal = principal
        self.rights = rights
        self.complaint = complaint

    def is_answered(self, place: int) -> bool:
        """Return whether the command at a place is answered."""
        return place in self._answered

    def listen(self, place: int, callback: Callable[[Any], None]) -> None:
        """Call back with the answer to the command at a place. It takes a single listener."""
        if place in self._listeners:
            raise BrokenInvariant("a reply has one listener")
        self._listeners[place] = callback

    def send(self, reply: Reply, answer: Any) -> None:
        """Send an answer."""
        if reply.place in self._answered:
            raise BrokenInvariant("a command is answered once")
        self._answered.add(reply.place)
        respond = self._respond
        try:
            respond(reply, answer)
        except MagnetarError as error:
            answer = error.to_wire()
            respond(reply, answer)
        except Exception:
            log.exception("an answer could not be written")
            answer = internal_failure().to_wire()
            respond(reply, answer)
        listener = self._listeners.get(reply.place)
        if listener is not None:
            listener(answer)

    def send_all(self, answers: Sequence[Answer]) -> None:
        """Send answers, none of which is an error. All leave that can."""
        places = [reply.place for reply, _ in answers]
        if (
            self._respond_in_columns is not None
            and not self._listeners
            and self._answered.isdisjoint(places)
            and len(places) == len(frozenset(places))
        ):
            self._answered.update(places)
            self._respond_in_columns(answers)
            return
        for reply, answer in answers:
            try:
                self.send(reply, answer)
            except Exception:
                # This is a bug; the other answers must leave.
                log.exception("an answer could not leave")

    def through(self, respond: Callable[[Any], None]) -> Desk:
        """Return a desk for one of the commands, whose answer goes to a function instead."""
        return Desk(
            _without_reply(respond),
            self.session,
            self.origin,
            self.principal,
            self.rights,
            self.complaint,
        )

    def admitted(self, rights: Rights, complaint: Complaint | None) -> Desk:
        """Return a desk of the same answers for commands that have passed access control."""
        known = self._admitted
        if known is not None and known.rights is rights and known.complaint is complaint:
            return known
        self._admitted = admitted = Desk(
            self._respond,
            self.session,
            self.origin,
            self.principal,
            rights,
            complaint,
            self._respond_in_columns,
        )
        return admitted


class _Asked(NamedTuple):
    """Fields of a reply: its place at a desk, and what its command brought beside its body."""

    desk: Desk
    place: int
    request_id: int
    traceparent: bytes
    span: Span | None


class Reply(_Asked):
    """Reply to a request: send or fail, once. Does nothing after the conversation has ended.

    Each command of a run has one, so it is a plain tuple, and all that they share is at their desk.

    Args:
        respond: takes the answer.
        session: as for Desk.
        origin: as for Desk.
        request_id: the number that the client gave to the request, unique in the conversation.
        principal: as for Desk.
        span: the span of the command; None: it is not traced.
        rights: as for Desk.
        complaint: as for Desk.
    """

    __slots__ = ()

    def __new__(
        cls,
        respond: Callable[[Any], None],
        session: CommandSession | None,
        origin: str = "",
        request_id: int = 0,
        principal: Principal = ANONYMOUS,
        span: Span | None = None,
        rights: Rights | None = None,
        complaint: Complaint | None = None,
    ) -> Self:
        """Make the reply to a command that is a run by itself."""
        desk = Desk(_without_reply(respond), session, origin, principal, rights, complaint)
        return tuple.__new__(cls, (desk, 0, request_id, b"", span))

    @property
    def session(self) -> CommandSession | None:
        """The conversation; see Desk."""
        return self.desk.session

    @property
    def origin(self) -> str:
        """The client's machine; see Desk."""
        return self.desk.origin

    @property
    def principal(self) -> Principal:
        """The sender of the command."""
        return self.desk.principal

    @property
    def rights(self) -> Rights | None:
        """The rights of the sender; see Desk."""
        return self.desk.rights

    @property
    def complaint(self) -> Complaint | None:
        """Whether the sender still has the right; see Desk."""
        return self.desk.complaint

    @property
    def answered(self) -> bool:
        """Whether the answer was sent."""
        return self.desk.is_answered(self.place)

    def send(self, answer: Any) -> None:
        """Send the response."""
        self.desk.send(self, answer)

    def fail(self, error: MagnetarError) -> None:
        """Send an error."""
        self.desk.send(self, error.to_wire())

    def repeat(self, answer: Any) -> None:
        """Send the response or the error that another copy of the command got."""
        self.desk.send(self, answer)

    def through(self, respond: Callable[[Any], None]) -> Reply:
        """Return a reply to the same command, whose answer goes to a function instead."""
        return self._at(self.desk.through(respond))

    def admitted(self, rights: Rights, complaint: Complaint | None) -> Reply:
        """Return this reply as the handler gets it: with the rights that the sender has."""
        return self._at(self.desk.admitted(rights, complaint))

    def when_answered(self, callback: Callable[[Any], None]) -> None:
        """Call back with the response or the error when it leaves. Takes a single listener."""
        self.desk.listen(self.place, callback)

    def _at(self, desk: Desk) -> Reply:
        return tuple.__new__(Reply, (desk, *self[1:]))


# A reply, and the response or error that it sends.
Answer = tuple[Reply, Any]


def send_together(answers: Sequence[Answer]) -> None:
    """Send the answers to a run, in their order; none of them is an error."""
    desks = dict.fromkeys([reply.desk for reply, _ in answers])
    for desk in desks:
        own = answers if len(desks) == 1 else [one for one in answers if one[0].desk is desk]
        desk.send_all(own)


def _without_reply(respond: Callable[[Any], None]) -> Callable[[Reply, Any], None]:
    return lambda _, answer: respond(answer)


def check_answer(answer: Any) -> None:
    """Check that an answer fits a frame.

    Raises:
        QuotaExceeded: the answer is larger than any client accepts.
    """
    size = byte_count_of(answer)
    if size > FRAME_BYTES_MAX:
        raise QuotaExceeded(
            f"the answer has {size} bytes, and a frame {FRAME_BYTES_MAX} at most: ask for less"
        )


# A command, as a message or a row, and its reply.
Item = tuple[Any, Reply]
# Takes what a handler raised for a command, with the command and its reply.
Failed = Callable[[Exception, Any, Reply], None]


class Run:
    """Commands of one kind, in the order in which they came: what a handler gets.

    Each of them is applied whole or not at all, and answered by itself. The error that one raises
    is given to `failed`, and the next ones are still handled. A handler does not raise.

    Attributes:
        items: the commands, each with its reply.
        failed: sends an error as the answer to its command, unless a wrapper lets the command wait.
    """

    __slots__ = ("failed", "items")

    def __init__(self, items: Sequence[Item], failed: Failed) -> None:
        self.items = items
        self.failed = failed


Handler = Callable[[Run], None]
# Handles one command. An exception goes to the failed() of its run.
OneHandler = Callable[[Any, Reply], None]


def each(handle: OneHandler) -> Handler:
    """Return a handler that handles the commands of a run one by one."""

    def handle_run(run: Run) -> None:
        for command, reply in run.items:
            try:
                handle(command, reply)
            except Exception as error:
                run.failed(error, command, reply)

    return handle_run


def each_of(handlers: Mapping[str, OneHandler]) -> dict[str, Handler]:
    """Return a table whose handlers handle the commands of a run one by one."""
    return {name: each(handle) for name, handle in handlers.items()}


# The largest possible size of an answer, for commands with large answers. Keys are names of command
# fields.
AnswerSizes = Mapping[str, Callable[[Any], int]]


class Gate(Protocol):
    """Lets commands through to their handlers, or refuses them."""

    def admit(self, name: str, command: Any, reply: Reply) -> Reply | None:
        """Return the reply that the handler gets; None: the command is refused, and answered."""
        ...

    def come(self, principal: Principal) -> Callable[[], None]:
        """Count a new conversation. The returned function removes it from the count.

        Raises:
            MagnetarError: there are too many.
        """
        ...

    def rights_of(self, principal: Principal) -> Rights:
        """Return the rights that a principal has now."""
        ...

    def delay_ms(self, principal: Principal) -> float:
        """Count a request of another protocol; return how long its sender has to wait after it."""
        ...

    def note(
        self,
        principal: Principal,
        origin: str,
        action: str,
        resources: Iterable[str],
        outcome: str,
    ) -> None:
        """Write a line of the audit log about an action of another protocol."""
        ...

    @property
    def uncounted(self) -> Gate:
        """This gate for commands that are a part of a request which was counted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as the transport knows it, before its first command.

    Attributes:
        write: sends serialized frames to the client; never blocks.
        end: ends the conversation at once; queued frames do not leave.
        origin: the client's machine, as far as the transport knows it.
        principal: who the client is.
        gate: access control, which every command passes before its handler; None disables it.
        frame_bytes_max: limit of a frame, which the client is told.
        push_bytes_max: when more bytes than this wait to leave, pushes pause until the client has
            taken some.
        answer_budget: budget of the answers that the client may leave unread.
        slow_operations: logs the commands that are answered late; None: no command is logged.
        traces: makes the spans of commands; None: there are none.
    """

    write: Callable[[bytes], None]
    end: Callable[[], None] = lambda: None
    origin: str = ""
    principal: Principal = ANONYMOUS
    gate: Gate | None = None
    frame_bytes_max: int = FRAME_BYTES_MAX
    push_bytes_max: int = 1 << 62
    answer_budget: AnswerBudget = field(default_factory=lambda: AnswerBudget(1 << 62))
    slow_operations: SlowOperations | None = None
    traces: ServerTraces | None = None


class Acceptor(Protocol):
    """Server as its transport sees it: it accepts conversations."""

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation."""
        ...


class CommandServer(Acceptor, Protocol):
    """Component that answers commands: `.server` of the broker and of the coordinator."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers. Keys are names of command fields in the envelope."""
        ...

    @property
    def answer_sizes(self) -> AnswerSizes:
        """The largest sizes of answers, for commands whose answers can be large."""
        ...

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send an error once all records that it depends on are durable."""
        ...


class SessionListener(Protocol):
    """Object that pushes to a conversation and must know when to pause or stop."""

    def session_writable(self, writable: bool) -> None:
        """Pause pushing (False), or continue (True)."""
        ...

    def session_closed(self) -> None:
        """Stop: the conversation has ended."""


class CommandSession:
    """Conversation with a client, seen from the server."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        conversation: Conversation,
        on_error: Callable[[MagnetarError, Reply], None],
        answer_sizes: AnswerSizes | None = None,
    ) -> None:
        self._handlers = handlers
        self._writer = FrameWriter(conversation.write)
        self._on_error = on_error
        self._answer_sizes = answer_sizes or {}
        self._principal = conversation.principal
        self._gate = conversation.gate
        self._push_bytes_max = conversation.push_bytes_max
        self._slow_operations = conversation.slow_operations
        self._traces = conversation.traces
        self.origin = conversation.origin
        # As its CommandHello says; servers show it to administrators.
        self.client_name = ""
        self.answer_budget = conversation.answer_budget
        self.frame_bytes_max = conversation.frame_bytes_max
        self.closed = False
        # Whether there is room for pushes.
        self.writable = True
        self._listeners: dict[SessionListener, None] = {}
        # What goes on as long as the client may do it, with what ends it.
        self._allowed: dict[Hashable, tuple[Complaint, Callable[[MagnetarError], None]]] = {}

    def listen(self, listener: SessionListener) -> None:
        """Tell the listener about this conversation until unlisten()."""
        self._listeners[listener] = None

    def unlisten(self, listener: SessionListener) -> None:
        """Stop telling the listener. Repeating it is harmless."""
        self._listeners.pop(listener, None)

    def while_allowed(
        self,
        key: Hashable,
        complaint: Complaint | None,
        end: Callable[[MagnetarError], None],
    ) -> None:
        """End something when the client loses the right to it, unless forget() comes first.

        Args:
            complaint: the check of the command that began it; None: there is no access control.
        """
        if complaint is not None:
            self._allowed[key] = (complaint, end)

    def forget(self, key: Hashable) -> None:
        """Forget something that has ended by itself. Repeating it is harmless."""
        self._allowed.pop(key, None)

    def look(self) -> None:
        """Check the client's rights again; end whatever it has lost the right to."""
        for key, (complaint, end) in list(self._allowed.items()):
            error = complaint()
            if error is not None and self._allowed.pop(key, None) is not None:
                end(error)

    def push(self, body: Any) -> None:
        """Send a command that the client did not ask for, such as messages."""
        if self.closed:
            return
        self._writer.send(body)
        if self.writable and self._writer.gathered_bytes > self._push_bytes_max:
            # The transport sees the queue, and reports when there is room again.
            self.on_writable(False)

    def on_frame(self, frame: Carried) -> None:
        """Handle all commands of a frame, whatever size their answers have."""
        self.handle(frame.commands)

    def handle(self, requests: Sequence[pb.Command], start: int = 0) -> int:
        """Handle commands, beginning with index start.

        Returns:
            Index of the first command that was not handled because its answer has no room, or the
            number of commands.
        Raises:
            DecodeError: columns cannot be read. None of their commands is handled.
        """
        name: str | None = None
        size_of: Callable[[Any], int] | None = None
        items: list[Item] = []
        # Of the commands that came alone.
        desk: Desk | None = None
        for place in range(start, len(requests)):
            request = requests[place]
            field = request.WhichOneof("body")
            columns = COLUMNS.get(field)
            kind = field if columns is None else columns.name
            if kind != name:
                if items:
                    run_handler(self._handlers, name, items, self._on_error, self._gate)
                    items = []
                name, desk = kind, None
                size_of = None if kind is None else self._answer_sizes.get(kind)
            if columns is not None:
                items += self._items_of(columns, getattr(request, columns.field))
                continue
            body = request if kind is None else as_row(getattr(request, kind))
            reserved = 0 if size_of is None else size_of(body)
            if reserved and not self.answer_budget.take(reserved):
                break
            if desk is None or size_of is not None:
                desk = self._desk(kind, self._send_alone, reserved=reserved)
            traceparent = request.traceparent
            span = self._span(kind, body, traceparent)
            # The request itself would keep its whole frame alive.
            asked = desk, len(items), request.request_id, traceparent, span
            items.append((body, tuple.__new__(Reply, asked)))
        else:
            place = len(requests)
        if items:
            run_handler(self._handlers, name, items, self._on_error, self._gate)
        return place

    def on_closed(self) -> None:
        """Tell all listeners that the conversation has ended."""
        self.closed = True
        self._allowed.clear()
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener.session_closed()

    def on_writable(self, writable: bool) -> None:
        """Tell all listeners whether the client takes more."""
        if writable == self.writable:
            return
        self.writable = writable
        for listener in list(self._listeners):
            listener.session_writable(writable)

    def _items_of(self, columns: Columns, body: Any) -> Iterator[Item]:
        """Return the commands in columns.

        Raises:
            DecodeError: they cannot be read.
        """
        request_ids, traceparents, rows = columns.unpack(body)
        spans: Iterable[Span | None] = repeat(None)
        if self._traces is not None:
            spans = [
                self._span(columns.name, row, traceparent)
                for row, traceparent in zip(rows, traceparents or repeat(b""), strict=False)
            ]
        if columns.answers is None:
            desk = self._desk(columns.name, self._send, self._send_rows)
        else:
            first_request_id = request_ids[0] if request_ids else 0
            together = AnsweredTogether(
                columns.answers, first_request_id, len(rows), self._send_if_open
            )
            desk = self._desk(columns.name, together.answer, together.answer_all)
        asked = zip(repeat(desk), count(), request_ids, traceparents or repeat(b""), spans)
        return zip(rows, map(partial(tuple.__new__, Reply), asked), strict=True)

    def _span(self, name: str | None, body: Any, traceparent: bytes) -> Span | None:
        if self._traces is None or name is None:
            return None
        return self._traces.command(name, body, traceparent)

    def _desk(
        self,
        name: str | None,
        send: Callable[[Reply, Any], None],
        send_all: Callable[[Sequence[Answer]], None] | None = None,
        reserved: int = 0,
    ) -> Desk:
        """Return the desk of commands of a kind that come now.

        Args:
            send: sends an answer.
            send_all: sends several that are rows; None: they leave one by one.
            reserved: bytes that the answer budget keeps for the answer to the only one.
        """
        slow_operations = self._slow_operations
        begun_ms = slow_operations.begun() if slow_operations is not None else 0.0
        return Desk(
            partial(self._answer, name, begun_ms, reserved, send),
            self,
            self.origin,
            self._principal,
            respond_in_columns=(
                None if send_all is None else partial(self._answer_all, name, begun_ms, send_all)
            ),
        )

    def _answer(
        self,
        name: str | None,
        begun_ms: float,
        reserved: int,
        send: Callable[[Reply, Any], None],
        reply: Reply,
        body: Any,
    ) -> None:
        if not self.closed:
            if reserved:
                check_answer(body)
            send(reply, body)
        self._note_answer(name, begun_ms, reply, body)
        if reserved:
            # After the writer's flush: from then on the transport counts these bytes.
            asyncio.get_running_loop().call_soon(self.answer_budget.give_back, reserved)

    def _answer_all(
        self,
        name: str | None,
        begun_ms: float,
        send_all: Callable[[Sequence[Answer]], None],
        answers: Sequence[Answer],
    ) -> None:
        """Let rows leave that answer commands in columns."""
        if not self.closed:
            send_all(answers)
        slow_operations = self._slow_operations
        is_late = slow_operations is not None and slow_operations.is_late(begun_ms)
        if is_late or self._traces is not None:
            for reply, row in answers:
                self._note_answer(name, begun_ms, reply, row)

    def _note_answer(self, name: str | None, begun_ms: float, reply: Reply, body: Any) -> None:
        if self._slow_operations is not None and name is not None:
            self._slow_operations.answered(
                name, self.origin, begun_ms, reply.traceparent, reply.span
            )
        if reply.span is not None:
            reply.span.answered(body)

    def _send_if_open(self, body: Any, request_id: int) -> None:
        if not self.closed:
            self._writer.send(body, request_id)

    def _send(self, reply: Reply, body: Any) -> None:
        self._writer.send(body, reply.request_id)

    def _send_alone(self, reply: Reply, body: Any) -> None:
        self._writer.send(as_message(body), reply.request_id)

    def _send_rows(self, answers: Sequence[Answer]) -> None:
        self._writer.send_rows([(reply[2], b"", row) for reply, row in answers])


def run_handler(
    handlers: Mapping[str, Handler],
    name: str | None,
    items: Sequence[Item],
    on_error: Callable[[MagnetarError, Reply], None],
    gate: Gate | None = None,
) -> None:
    """Call the handler of a run. An exception that a command raises becomes its reply.

    Args:
        name: the commands' field in the envelope; None: the items have envelopes without a body
            that is known here.
    """
    if name is None:
        for request, reply in items:
            reply.fail(_refusal_of_unread(request))
        return
    handler = handlers.get(name)
    if handler is None:
        for _, reply in items:
            reply.fail(Unimplemented(f"this server does not have the command {name!r}"))
        return

    def failed(error: Exception, _command: Any, reply: Reply) -> None:
        if reply.answered:
            log.error("handler of %s failed after its answer", name, exc_info=error)
        elif isinstance(error, MagnetarError):
            on_error(error, reply)
        else:
            log.error("handler of %s failed", name, exc_info=error)
            reply.fail(internal_failure())

    admitted: list[Item] = []
    for item in items:
        body, reply = item
        try:
            check_texts(body)
            if gate is not None:
                passed = gate.admit(name, body, reply)
                if passed is None:
                    continue
                item = body, passed
        except Exception as error:
            failed(error, body, reply)
        else:
            admitted.append(item)
    if admitted:
        handler(Run(admitted, failed))


def _refusal_of_unread(request: pb.Command) -> MagnetarError:
    """Return the refusal of a command without a body that is known here."""
    if len(UnknownFieldSet(request)):
        return Unimplemented("this version of the server does not have the command")
    return InvalidArgument(
        "the command cannot be read: it is too large for its kind, or a text in it is not UTF-8"
    )


def internal_failure() -> InternalError:
    """Return the error for a bug in the server. The server's log has the details."""
    return InternalError("the server failed on this command; the server's log says why")
