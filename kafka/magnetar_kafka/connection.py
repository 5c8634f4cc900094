"""Connection of a Kafka client: frames in, answers out, strictly in order.

A request begins when the one before it is applied. Answers leave in the order of requests, each
when what it tells is durable: a client may send a batch while the one before it is being written.
Whatever a client may make large is limited before it takes memory. A frame has a length of 4 bytes,
and begins with the kind of request and its version.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

from magnetar_core.errors import MagnetarError, QuotaExceeded
from magnetar_kafka.answer import Answer
from magnetar_kafka.budget import Budget
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.metrics import KafkaMetrics
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.security.visitor import Doorkeeper, Visitor
from magnetar_kafka.wire.apis import API_OF_KEY, API_VERSIONS, PRODUCE, Api
from magnetar_kafka.wire.codec import (
    Input,
    Malformed,
    is_flexible,
    read_nullable_string,
    request_reader,
    response_writer,
    skip_tags,
)

log = logging.getLogger(__name__)

# A client that has not shown who it is has no rights.
STRANGER = Caller(is_known=False)
# The length of a frame, and what every request begins with: kind, version, correlation id.
LENGTH_BYTES = 4
HEAD_BYTES = 8
# No request but Produce needs more.
SMALL_REQUEST_BYTES_MAX = 1 << 20
# Of a client that is not known yet; a token has to fit.
STRANGER_BYTES_MAX = 64 << 10
# Requests that are applied, and whose answers wait.
UNANSWERED_MAX = 64
# A client that is over its quota waits for so long at once, and not longer.
DELAY_MS_MAX = 60_000
WRITE_BUFFER_BYTES = 256 << 10
# So much is read before it is needed: a connection that does not read does not see its end either.
READ_AHEAD_BYTES = 64 << 10


@dataclass(slots=True, kw_only=True)
class _Leaving:
    """An answer that has not left, and the bytes of its request.

    Attributes:
        delay_ms: for how long nothing more is read of the connection.
    """

    api: Api
    version: int
    correlation_id: bytes
    answer: Answer
    reserved: int
    delay_ms: int = 0
    is_ready: bool = False


class _Closed(Exception):
    """The connection ends; the reason is one of the metric's."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class Server:
    """Surroundings that all connections share.

    Attributes:
        handle: applies a request, and returns its answer.
        budget: of requests, until they are answered. answer_budget: of answers, until clients have
            taken them.
        keeper: decides who may enter.
        stranger_timeout_ms: how long a client may stay unknown.
        connections: those that are open.
    """

    config: KafkaConfig
    keeper: Doorkeeper
    stranger_timeout_ms: int
    handle: Handle
    metrics: KafkaMetrics
    budget: Budget
    answer_budget: Budget
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[Connection] = field(default_factory=set)


class Connection(asyncio.Protocol):
    """A client's connection.

    Args:
        is_external: whether it came through the port for clients outside.
    """

    def __init__(self, server: Server, *, is_external: bool = False) -> None:
        self._server = server
        self._is_external = is_external
        self._buffer = bytearray()
        # How many bytes the buffer may hold before the network has to wait.
        self._wanted = READ_AHEAD_BYTES
        self._more = asyncio.Event()
        self._left = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._leaving: deque[_Leaving] = deque()
        # Bytes of answers that the network has not taken yet.
        self._untaken = 0
        self._serving: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._visitor: Visitor | None = None
        self._stranger_timer: asyncio.TimerHandle | None = None

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        # The class of uvloop is not derived from asyncio's.
        self._transport = stream = cast(asyncio.Transport, transport)
        server = self._server
        stream.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._peer = str((stream.get_extra_info("peername") or ("",))[0])
        server.connections.add(self)
        server.metrics.connections.inc()
        self._visitor = visitor = Visitor(server.keeper, self, _certificate_of(stream), self._peer)
        try:
            visitor.enter()
        except MagnetarError as error:
            self.refuse(error)
            return
        loop = asyncio.get_running_loop()
        if visitor.caller is None:
            self._stranger_timer = loop.call_later(
                server.stranger_timeout_ms / 1000, self._stranger_is_late
            )
        self._serving = loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Gather what was sent; let the network wait if it is not needed yet."""
        self._buffer += data
        if len(self._buffer) > self._wanted and self._transport is not None:
            self._transport.pause_reading()
        self._more.set()

    def pause_writing(self) -> None:
        """The client does not take its answers."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has taken most of its answers."""
        self._writable.set()
        self._give_back_untaken()

    def connection_lost(self, error: Exception | None) -> None:
        """End: what was not begun is dropped."""
        server = self._server
        if self not in server.connections:
            return
        server.connections.discard(self)
        server.metrics.connections.dec()
        if self._stranger_timer is not None:
            self._stranger_timer.cancel()
        if self._visitor is not None:
            self._visitor.leave()
        if self._serving is not None:
            self._serving.cancel()
        server.budget.give_back(sum(one.reserved for one in self._leaving))
        server.answer_budget.give_back(sum(one.answer.reserved for one in self._leaving))
        self._leaving.clear()
        self._give_back_untaken()

    # Ending

    async def finish(self) -> None:
        """Answer what was begun, and close; the server is stopping."""
        self._more.set()
        if self._serving is not None:
            await asyncio.wait([self._serving])

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, error: MagnetarError) -> None:
        """Close at once: the client may not be here."""
        reason = "too_many" if isinstance(error, QuotaExceeded) else "unauthenticated"
        self._close(reason, str(error))

    def _stranger_is_late(self) -> None:
        if self._visitor is not None and self._visitor.caller is None:
            self._close("unauthenticated", "it did not show who it is in time")

    def _close(self, reason: str, text: str) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._server.metrics.closed.labels(reason).inc()
        log.info("the connection of a Kafka client from %s is closed: %s", self._peer, text)
        transport.abort()

    # Requests

    async def _serve(self) -> None:
        try:
            while await self._next_request():
                pass
            while self._leaving:
                self._left.clear()
                await self._left.wait()
            if self._transport is not None:
                self._transport.close()
        except _Closed as closed:
            self._close(closed.reason, str(closed))
        except Malformed as error:
            self._close("malformed", str(error))
        except Exception:
            log.exception("a request of a Kafka client failed")
            self._close("failed", "a bug; the log has it")

    async def _next_request(self) -> bool:
        """Read a request and apply it; return False when the server stops."""
        server = self._server
        if not await self._has(LENGTH_BYTES + HEAD_BYTES):
            return False
        size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big", signed=True)
        key, version = (int.from_bytes(self._buffer[at : at + 2], "big") for at in (4, 6))
        api = API_OF_KEY.get(key)
        limit = server.config.kafka_request_bytes_max
        if api is not PRODUCE:
            limit = min(limit, SMALL_REQUEST_BYTES_MAX)
        visitor = self._visitor
        assert visitor is not None
        if visitor.caller is None:
            limit = min(limit, STRANGER_BYTES_MAX)
            if api is not None and not api.is_for_strangers:
                raise _Closed(
                    "unauthenticated", f"it sends {api.name} before it has shown who it is"
                )
        if not HEAD_BYTES <= size <= limit:
            raise Malformed(f"a request of kind {key} has {size} bytes, and not {limit} at most")
        await server.budget.take(size)
        try:
            try:
                async with asyncio.timeout(server.config.kafka_request_timeout_ms / 1000):
                    if not await self._has(LENGTH_BYTES + size):
                        return False
            except TimeoutError:
                raise _Closed("slow", "a request did not come to its end in time") from None
            end = LENGTH_BYTES + size
            with memoryview(self._buffer) as view:
                frame = bytes(view[LENGTH_BYTES:end])
            del self._buffer[:end]
            self._want(READ_AHEAD_BYTES)
            delay_ms = self._delay_ms(api)
            answer, known, answered_version = await self._apply(api, key, version, frame)
        except BaseException:
            server.budget.give_back(size)
            raise
        leaving = _Leaving(
            api=known,
            version=answered_version,
            correlation_id=frame[4:HEAD_BYTES],
            answer=answer,
            reserved=size,
            delay_ms=max(delay_ms, answer.delay_ms),
        )
        self._leaving.append(leaving)

        def ready() -> None:
            leaving.is_ready = True
            self._flush()

        answer.settle(ready)
        if answer.is_last:
            return False
        await self._room()
        if leaving.delay_ms:
            await self._muted(leaving.delay_ms)
        # Many small requests may have come together: others have their turn.
        await asyncio.sleep(0)
        return True

    def _delay_ms(self, api: Api | None) -> int:
        """Count a request; return how long the client has to wait after it."""
        gate = self._server.keeper.gate
        caller = self._visitor.caller if self._visitor is not None else None
        if gate is None or caller is None or api is None or api.finishes:
            return 0
        return math.ceil(min(gate.delay_ms(caller.principal), DELAY_MS_MAX))

    async def _muted(self, delay_ms: int) -> None:
        """Read nothing for a time, unless the server stops."""
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._server.stopping.wait()
        except TimeoutError:
            return

    async def _has(self, byte_count: int) -> bool:
        """Wait until so many bytes are there; return False when the server stops."""
        while len(self._buffer) < byte_count:
            if self._server.stopping.is_set():
                return False
            self._more.clear()
            self._want(max(byte_count, READ_AHEAD_BYTES))
            await self._more.wait()
        return not self._server.stopping.is_set()

    def _want(self, byte_count: int) -> None:
        """Let the buffer hold so many bytes."""
        self._wanted = byte_count
        if len(self._buffer) <= byte_count and self._transport is not None:
            self._transport.resume_reading()

    async def _room(self) -> None:
        """Wait while too many answers are on their way.

        Raises:
            _Closed: the client does not take them.
        """
        if len(self._leaving) < UNANSWERED_MAX and self._writable.is_set():
            return
        while len(self._leaving) >= UNANSWERED_MAX:
            self._left.clear()
            await self._left.wait()
        try:
            async with asyncio.timeout(self._server.config.kafka_request_timeout_ms / 1000):
                await self._writable.wait()
        except TimeoutError:
            raise _Closed("slow", "it does not take its answers") from None

    async def _apply(
        self, api: Api | None, key: int, version: int, frame: bytes
    ) -> tuple[Answer, Api, int]:
        """Apply a request; return its answer, and the kind and version that it has.

        Raises:
            Malformed: it is not a request that is known here.
        """
        if api is None or not api.first <= version <= api.last:
            if api is API_VERSIONS:
                # The oldest version, which every client reads, has the code and the table.
                return _unsupported(), API_VERSIONS, 0
            raise Malformed(f"version {version} of request {key} is not answered here")
        source = Input(frame, HEAD_BYTES)
        client_id = read_nullable_string(source) or ""
        if is_flexible(api, version):
            skip_tags(source)
        body = request_reader(api, version)(source)
        if source.at != len(frame):
            raise Malformed(f"{len(frame) - source.at} bytes follow a request {api.name}")
        assert self._transport is not None
        assert self._visitor is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        request = Request(
            api=api,
            version=version,
            body=body,
            client_id=client_id,
            caller=self._visitor.caller or STRANGER,
            visitor=self._visitor,
            address=(host, port),
            is_external=self._is_external,
            stopping=self._server.stopping,
        )
        return await self._server.handle(request), api, version

    # Answers

    def _flush(self) -> None:
        """Write the answers that may leave now, up to the first that has to wait."""
        leaving, transport = self._leaving, self._transport
        if transport is None or transport.is_closing():
            return
        while leaving and leaving[0].is_ready:
            one = leaving.popleft()
            self._server.budget.give_back(one.reserved)
            self._untaken += one.answer.reserved
            message = one.answer.leaving()
            if message is None:
                self._close("moved", "a shard behind an answer has another owner")
                return
            error = one.answer.first_error()
            self._server.metrics.requests.labels(one.api.name, error.name).inc()
            if one.answer.is_silent:
                if error:
                    self._close("refused", f"{error.name} cannot be answered")
                    return
                continue
            transport.write(_framed(one, message))
        if self._writable.is_set():
            self._give_back_untaken()
        self._left.set()

    def _give_back_untaken(self) -> None:
        self._server.answer_budget.give_back(self._untaken)
        self._untaken = 0


def _certificate_of(transport: asyncio.Transport) -> bytes:
    """Return the certificate that a client has shown, in PEM; empty: none."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(shown).encode() if shown else b""


def _framed(one: _Leaving, message: dict[str, Any]) -> bytearray:
    if one.delay_ms:
        message = {**message, "throttle_time": one.delay_ms}
    out = bytearray(LENGTH_BYTES)
    out += one.correlation_id
    # Clients read the table of versions before they know which header to expect.
    if one.api is not API_VERSIONS and is_flexible(one.api, one.version):
        out.append(0)
    response_writer(one.api, one.version)(out, message)
    out[:LENGTH_BYTES] = (len(out) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return out


def _unsupported() -> Answer:
    code = ErrorCode.UNSUPPORTED_VERSION
    rows = [
        {
            "api_key": API_VERSIONS.key,
            "min_version": API_VERSIONS.first,
            "max_version": API_VERSIONS.last,
        }
    ]
    return Answer(body=lambda: {"error_code": code, "api_keys": rows}, codes=(code,))
