"""A link from its handshake to its end: requests and their replies, pushes, the watchdog.

A session never comes back: when the link breaks, everything under way gets LinkClosed once, and
frames that still arrive are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.link.addresses import title_of
from magnetar.link.runtime import Runtime
from magnetar_core.errors import InternalError, MagnetarError, from_wire
from magnetar_core.membership.cluster_identity import ClusterIdentity
from magnetar_core.protocol_version import PROTOCOL_VERSION, check_server
from magnetar_core.requests import Request
from magnetar_core.transport.columns.column import AnswerColumns, Columns
from magnetar_core.transport.columns.kinds import ANSWER_FIELDS, ANSWERS, COLUMNS, Row, as_row
from magnetar_core.transport.frames import Carried, FrameWriter
from magnetar_core.transport.spliced import Spliced, whole
from magnetar_core.transport.transport import Link, LinkClosed
from magnetar_core.transport.waiters import settle
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2, service_pb2

log = logging.getLogger("magnetar")

ResponseT = TypeVar("ResponseT", bound=Message | Row)
# An answer: a message, or a row.
AnswerT = TypeVar("AnswerT", bound=Message | Row)
# What becomes of a request.
Result: TypeAlias = MagnetarError | LinkClosed | AnswerT
OnReply: TypeAlias = Callable[[Result[AnswerT]], None]
# Pushes of a server: to a consumer or a member of a group, or to all listeners.
Push = broker_pb2.CommandDeliver | broker_pb2.CommandConsumerChange | group_pb2.CommandGroupChange
Unasked = Push | common_pb2.CommandOwnersChanged
UNASKED = (
    broker_pb2.CommandDeliver,
    broker_pb2.CommandConsumerChange,
    group_pb2.CommandGroupChange,
    common_pb2.CommandOwnersChanged,
)


# A request under way: what is told of its answer, the name of the answer's field in the envelope,
# when it was written (ms), and whether the server may park it for long: the silence of such a
# request alone condemns no link. The name of the field says which type of response it has.
Waiting: TypeAlias = tuple[OnReply[Any], str, float, bool]


class LinkSession:
    """The client's end of a link."""

    def __init__(
        self,
        address: str,
        runtime: Runtime,
        on_push: Callable[[LinkSession, Unasked], None],
        *,
        on_silent: Callable[[], None] | None = None,
        patience_ms: float = 0.0,
    ) -> None:
        """A session without a link.

        Args:
            on_push: told what the server says unasked.
            on_silent: called each time that a request has waited for an answer for patience_ms.
        """
        self.title = title_of(address)
        self.closed = False
        # What the server takes, known after the handshake. A coordinator takes no batches.
        self.frame_bytes_max = 0
        self.batch_bytes_max = 0
        # Whether anything but the handshake was ever answered: the link is of use.
        self.useful = False
        self._runtime = runtime
        self._on_push = on_push
        self._link: Link | None = None
        self._writer: FrameWriter | None = None
        self._waiting: dict[int, Waiting] = {}
        # Requests that left in a message which is answered as a whole, by the first of their ids.
        self._together: dict[int, Sequence[int]] = {}
        self._request_count = 0
        self._close_callbacks: dict[int, Callable[[], None]] = {}
        self._callback_count = 0
        self._heard_at_ms = runtime.now_ms()
        self._probed_at_ms = self._heard_at_ms
        self._probe_waits = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._on_silent = on_silent
        self._patience_ms = patience_ms
        # While requests are under way, if a listener asked to be told of silence.
        self._listening: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._waiting

    async def handshake(self, link: Link) -> None:
        """Begin the link with Hello.

        Raises:
            LinkClosed: the link broke.
            ClusterMismatch: the server belongs to another cluster.
            UnsupportedVersion: the server has another version of the protocol.
        """
        self._link = link
        if self.closed:
            link.close()
            raise LinkClosed(f"the link to {self.title} broke at once")
        self._writer = FrameWriter(
            link.write, partial(self._runtime.call_last, self._died), self._left_together
        )
        self._watch_later()
        reply = await self.call(self._hello())
        check_server(reply.protocol_version, self.title)
        self.frame_bytes_max = reply.frame_bytes_max
        self.batch_bytes_max = reply.batch_bytes_max
        # The server has checked what the client knew when it asked; another server may have been
        # faster with the first answer.
        told = ClusterIdentity.of(reply)
        self._runtime.cluster = self._runtime.cluster.learned(told, self.title)
        self.useful = False

    def request(
        self,
        body: Request[ResponseT] | Spliced[Request[ResponseT]] | Row,
        on_reply: OnReply[ResponseT],
        *,
        patient: bool = False,
        context: object = None,
    ) -> None:
        """Write a request. `on_reply` is called exactly once, and never in this call.

        Args:
            context: where a span of the request belongs: see ClientTraces.request.
        """
        writer, runtime = self._writer, self._runtime
        if self.closed or writer is None:
            error = LinkClosed(f"the link to {self.title} is closed")
            runtime.call_soon(on_reply, on_reply, error)
            return
        request_id = self._request_count = self._request_count + 1
        traceparent = b""
        if runtime.traces is not None:
            span = runtime.traces.request(body if isinstance(body, Row) else whole(body), context)
            if span is not None:
                on_reply = runtime.traces.ending(span, on_reply)
                traceparent = span.traceparent
        response = ANSWER_FIELDS[body.kind if isinstance(body, Spliced) else type(body)]
        self._waiting[request_id] = (on_reply, response, runtime.now_ms(), patient)
        if self._listening is None and self._on_silent is not None:
            self._listen_for(self._patience_ms)
        writer.send(body, request_id, traceparent)

    async def call(
        self, body: Request[ResponseT], *, patient: bool = False, timeout_ms: float | None = None
    ) -> ResponseT:
        """Write a request and wait for its reply.

        Raises:
            TimeoutError: no reply came within timeout_ms, if that is given.
            LinkClosed: the link broke first; the request may have arrived.
            MagnetarError: the server refused the request.
        """
        future: asyncio.Future[ResponseT] = self._runtime.loop.create_future()
        on_reply: Callable[[ResponseT | Exception], None] = partial(settle, future)
        self.request(body, on_reply, patient=patient)
        if timeout_ms is None:
            return await future
        deadlines = self._runtime.deadlines
        number = deadlines.call_later(on_reply, timeout_ms, partial(on_reply, TimeoutError()))
        try:
            return await future
        finally:
            deadlines.forget(number)

    def post(self, body: Message) -> None:
        """Write a command that has no reply."""
        if not self.closed and self._writer is not None:
            self._writer.send(body)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the session ends; at once if it has ended.

        Returns:
            A function that ends that. A link may last longer than what listens to it.
        """
        self._callback_count += 1
        number = self._callback_count
        if self.closed:
            callback()
        else:
            self._close_callbacks[number] = callback

        def unwatch() -> None:
            self._close_callbacks.pop(number, None)

        return unwatch

    def on_frame(self, frame: Carried) -> None:
        """Handle a frame from the transport."""
        self._runtime.guarded(self._died, self._on_frame, frame)

    def _on_frame(self, frame: Carried) -> None:
        if self.closed:
            return
        self._heard_at_ms = self._runtime.now_ms()
        for command in frame.commands:
            name = command.WhichOneof("body")
            columns = COLUMNS.get(name)
            if columns is not None:
                self._replied_in_columns(columns, getattr(command, columns.field))
            elif name in ANSWERS:
                self._replied_together(ANSWERS[name], getattr(command, name))
            elif command.request_id == 0:
                self._pushed(name, command)
            else:
                self._replied(command.request_id, name, command)

    def on_link_closed(self) -> None:
        """Handle the end of the link, which the transport has noticed."""
        self.close(f"the link to {self.title} broke")

    def close(self, reason: str) -> None:
        """End the session now: everything under way gets LinkClosed."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._watchdog, self._listening):
            if timer is not None:
                timer.cancel()
        if self._link is not None:
            self._link.close()
        waiting, self._waiting = self._waiting, {}
        if waiting:
            log.info("%s; %d requests are under way", reason, len(waiting))
        for on_reply, *_ in waiting.values():
            self._runtime.tell(on_reply, LinkClosed(reason))
        callbacks, self._close_callbacks = self._close_callbacks, {}
        for callback in callbacks.values():
            self._runtime.guarded(self._runtime.fail, callback)

    def _died(self, error: MagnetarError) -> None:
        """Close the link: what is under way is sent again on another one."""
        self.close(f"the link to {self.title} is given up: {error}")

    def _replied(self, request_id: int, name: str | None, one: service_pb2.Command) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            return
        self.useful = True
        on_reply, response_field, _, _ = waiting
        result: Result[Message | Row]
        if name == response_field:
            result = as_row(getattr(one, name))
        elif name == "error":
            result = from_wire(one.error)
        elif name is None:
            result = InternalError("the server answered in a way that this version does not know")
        else:
            result = InternalError(
                f"{self.title} answered with {name} where {response_field} belongs"
            )
        self._runtime.tell(on_reply, result)

    def _left_together(self, request_ids: Sequence[int]) -> None:
        self._together[request_ids[0]] = request_ids

    def _replied_together(self, kind: AnswerColumns, body: Message) -> None:
        """Handle the answers to a message. Unless they fit what it asked, none of them counts."""
        try:
            answers = kind.unpack(body)
        except DecodeError as error:
            self.close(f"{self.title} sent answers that cannot be read: {error}")
            return
        together = self._together.pop(answers.first_request_id, ())
        if not together or len(together) != answers.asked_count:
            self.close(f"{self.title} sent {kind.field} for others than were sent")
            return
        request_ids = [together[place] for place in answers.places()]
        self._replied_to(kind.name, request_ids, answers.rows)

    def _replied_in_columns(self, columns: Columns, body: Message) -> None:
        """Handle answers in columns, which name their requests."""
        try:
            request_ids, _, answers = columns.unpack(body)
        except DecodeError as error:
            self.close(f"{self.title} sent answers that cannot be read: {error}")
            return
        self._replied_to(columns.name, request_ids, answers)

    def _replied_to(
        self, name: str, request_ids: Sequence[int], answers: Sequence[Message | Row]
    ) -> None:
        """Handle several answers of a kind. Unless all fit what waits, none of them counts."""
        waiting = self._waiting
        fitting = {one for one in request_ids if one in waiting and waiting[one][1] == name}
        if len(fitting) != len(answers):
            self.close(f"{self.title} sent {name} for other requests than are under way")
            return
        self.useful = True
        for request_id, answer in zip(request_ids, answers, strict=True):
            # A callback may have closed the link, and told the others so.
            if request_id in self._waiting:
                self._runtime.tell(self._waiting.pop(request_id)[0], answer)

    def _pushed(self, name: str | None, one: service_pb2.Command) -> None:
        if name == "error":
            log.warning("%s reports: %s", self.title, one.error.message)
        elif name is not None:
            body = getattr(one, name)
            if isinstance(body, UNASKED):
                self._on_push(self, body)

    def _hello(self) -> common_pb2.CommandHello:
        known = self._runtime.cluster
        return common_pb2.CommandHello(
            protocol_version=PROTOCOL_VERSION,
            client_name=self._runtime.config.client_name,
            cluster_id=known.cluster_id,
            membership_version=known.membership_version,
            cluster_hash=known.cluster_hash,
        )

    def _watch_later(self) -> None:
        period_ms = self._runtime.config.request_timeout_ms / 4
        self._watchdog = self._runtime.call_later(self._died, period_ms, self._watch)

    def _watch(self) -> None:
        """Close a link that looks alive and is not; ask one that has long been silent.

        A half-open link looks like silence, and so does a server with nothing to say or with a
        parked request: a repeated Hello, which is answered at once, tells them apart.
        """
        now_ms = self._runtime.now_ms()
        timeout_ms = self._runtime.config.request_timeout_ms
        patient_one_is_late = False
        for _, _, written_at_ms, patient in self._waiting.values():
            late = now_ms - written_at_ms >= timeout_ms
            if not patient:
                if late:
                    self.close(f"{self.title} left a request without an answer for too long")
                    return
                break
            patient_one_is_late = patient_one_is_late or late
        silent = now_ms - self._heard_at_ms >= timeout_ms / 2
        probe_is_due = patient_one_is_late and now_ms - self._probed_at_ms >= timeout_ms
        if (silent or probe_is_due) and not self._probe_waits:
            self._probe_waits = True
            self._probed_at_ms = now_ms
            self.request(self._hello(), self._on_probe)
        self._watch_later()

    def _listen_for(self, delay_ms: float) -> None:
        self._listening = self._runtime.call_later(self._died, delay_ms, self._listen)

    def _listen(self) -> None:
        """Tell of silence while the oldest request has none of the patience left."""
        self._listening = None
        for _, _, written_at_ms, patient in self._waiting.values():
            if not patient:
                left_ms = written_at_ms + self._patience_ms - self._runtime.now_ms()
                if left_ms <= 0 and self._on_silent is not None:
                    self._on_silent()
                self._listen_for(left_ms if left_ms > 0 else self._patience_ms)
                break

    def _on_probe(self, result: Result[common_pb2.CommandHelloResponse]) -> None:
        self._probe_waits = False
        if isinstance(result, MagnetarError):
            self.close(f"{self.title} refuses: {result}")
