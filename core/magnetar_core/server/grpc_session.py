"""The server's end of a conversation: commands come in, answers and pushes go out.

Frames are carried by gRPC, or by a stream to which the client takes them: see the module
`stream_offers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from magnetar_core.access.principal import Principal
from magnetar_core.config import ListenConfig
from magnetar_core.errors import InvalidArgument, MagnetarError, QuotaExceeded
from magnetar_core.server.commands import CommandServer, Conversation, Gate
from magnetar_core.server.grpc_calls import abort, machine_of
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.answer_budget import AnswerBudget
from magnetar_core.transport.frame_stream import FrameStream, StreamEnded, is_frame
from magnetar_core.transport.frames import Turns
from magnetar_core.transport.outbox import Outbox
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.transport.stream_offers import Offer
from magnetar_core.wire import service_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]


class ServerSession:
    """Server's end of a conversation."""

    def __init__(
        self,
        context: Context,
        commands: CommandServer,
        config: ListenConfig,
        principal: Principal,
        gate: Gate | None,
        slow_operations: SlowOperations,
        traces: ServerTraces | None,
        on_silent: Callable[[], None],
    ) -> None:
        self._context = context
        # What carries the frames; None: the client has not taken them to a stream yet.
        self._carrier: Context | FrameStream | None = None
        self._config = config
        self._answer_budget = AnswerBudget(config.session_answer_bytes_max)
        self._outbox = Outbox(config.session_push_bytes_max, self._answer_budget.note_unsent)
        self._draining: asyncio.Task[None] | None = None
        # Until the first command has come: the timer that ends the conversation.
        self._silence_timer: asyncio.TimerHandle | None = None
        self._on_silent = on_silent
        # What the client is told at the end, if it may not go on.
        self._refusal: MagnetarError | None = None
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._session = commands.accept(
            Conversation(
                write=self.write,
                end=self.end,
                origin=machine_of(context),
                principal=principal,
                gate=gate,
                frame_bytes_max=config.frame_bytes_max,
                push_bytes_max=config.session_push_bytes_max,
                answer_budget=self._answer_budget,
                slow_operations=slow_operations,
                traces=traces,
            )
        )

    def write(self, frame: bytes) -> None:
        """Queue a frame; a client that leaves too much unread is disconnected."""
        self._outbox.put(frame)
        queued_bytes = self._outbox.byte_count
        if queued_bytes > self._config.session_push_bytes_max and self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        if queued_bytes > self._config.session_queue_bytes_max:
            log.warning("%s leaves too much unread; it is disconnected", self._context.peer())
            self.refuse(QuotaExceeded("the client left too much unread"))

    def finish(self) -> None:
        """End the conversation after the queued frames."""
        self._outbox.finish()
        if self._carrier is None:
            self._ended.set()

    def end(self) -> None:
        """End the conversation at once; queued frames do not leave."""
        self._outbox.close()
        self._ended.set()

    def refuse(self, error: MagnetarError) -> None:
        """End the conversation at once, and say why."""
        self._refusal = error
        self.end()

    def push(self, body: Any) -> None:
        """Send a command that the client did not ask for."""
        self._session.push(body)

    def look(self) -> None:
        """Check the client's rights again; end whatever it has lost the right to."""
        self._session.look()

    def close(self) -> None:
        """Note that the conversation is over. Repeating it is harmless."""
        self._outbox.close()
        self._session.on_closed()
        self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until the conversation is over."""
        await self._closed.wait()

    async def run(self, offer: Offer | None) -> None:
        """Carry frames both ways until either side ends the conversation.

        Args:
            offer: the client takes the frames to a stream, or it ends; None: they stay in gRPC.
        """
        loop = asyncio.get_running_loop()
        self._await_command(self._look_for_command)
        # A sender that waits for the client notices neither the overflow nor the end.
        parts: list[asyncio.Task[Any]] = [loop.create_task(self._ended.wait())]
        try:
            if offer is None:
                self._carrier = self._context
            else:
                parts.append(loop.create_task(self._move(offer)))
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            if self._carrier is not None:
                sending = loop.create_task(self._send(self._carrier))
                parts = [parts[0], sending, loop.create_task(self._receive(self._carrier))]
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                if isinstance(self._carrier, FrameStream) and done == {sending}:
                    await self._carrier.finish(self._config.stop_grace_ms / 1_000)
        finally:
            self._stop_silence_timer()
            if self._draining is not None:
                parts.append(self._draining)
            for part in parts:
                part.cancel()
            if isinstance(self._carrier, FrameStream):
                self._carrier.close()
            self.close()
        if self._refusal is not None:
            await abort(self._context, self._refusal.to_wire())

    async def _move(self, offer: Offer) -> None:
        try:
            self._carrier = await offer.taken()
        except TimeoutError:
            log.debug("%s does not take its stream", self._context.peer())

    def _await_command(self, then: Callable[[], None]) -> None:
        half_s = self._config.handshake_timeout_ms / 2_000
        self._silence_timer = asyncio.get_running_loop().call_later(half_s, then)

    def _look_for_command(self) -> None:
        """Wait once more.

        After a pause of this process, both timers are due at once, and the client's command is not
        read yet. So the second timer begins when the first one has fired.
        """
        self._await_command(self._end_silent)

    def _end_silent(self) -> None:
        limit_ms = self._config.handshake_timeout_ms
        log.debug("no command from %s for %d ms; ending the call", self._context.peer(), limit_ms)
        self._on_silent()
        self.refuse(InvalidArgument(f"no command came within handshake_timeout_ms, {limit_ms} ms"))

    def _stop_silence_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    async def _drain(self) -> None:
        """Pause pushes until the client has read enough."""
        self._session.on_writable(False)
        try:
            await self._outbox.drain()
        finally:
            self._draining = None
        self._session.on_writable(True)

    async def _hand_over(self, commands: Sequence[service_pb2.Command]) -> None:
        """Handle commands as long as the client takes the answers; the other commands wait here."""
        answer_budget, at = self._answer_budget, 0
        while True:
            at = self._session.handle(commands, at)
            if at == len(commands) and not answer_budget.is_spent:
                return
            await answer_budget.shrinks()

    async def _send(self, carrier: Context | FrameStream) -> None:
        try:
            while (frame := await self._outbox.take()) is not None:
                await carrier.write(frame)
        except (StreamEnded, grpc.aio.BaseError, asyncio.InvalidStateError):
            log.debug("%s is gone", self._context.peer())

    async def _receive(self, carrier: Context | FrameStream) -> None:
        turns = Turns()
        try:
            while is_frame(data := await carrier.read()):
                self._stop_silence_timer()
                async for part in turns.received(data):
                    await self._hand_over(part.commands)
        except DecodeError:
            log.warning(
                "%s sent bytes that are not a frame; it is disconnected", self._context.peer()
            )
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            log.debug("%s is gone", self._context.peer())
        except Exception:
            log.exception("a frame from %s could not be handled", self._context.peer())
