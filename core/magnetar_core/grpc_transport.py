"""Transport between real processes: a conversation is a bidirectional gRPC stream.

Its frames move to a stream of their own where the server offers one and it can be reached. The gRPC
stream stays, and the conversation ends with either of the two: it says why a server ends it.

Each link has a channel of its own, so that a broken link is noticed at once and the next attempt
does not wait for gRPC's backoff: the caller decides when to try again. Retries, proxies and service
configuration are off for the same reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from magnetar_core.config import FRAME_BYTES_MAX, InvalidConfig
from magnetar_core.frame_stream import FrameStream, StreamEnded, is_frame
from magnetar_core.frames import Carried, Turns
from magnetar_core.outbox import Outbox
from magnetar_core.security.link_security import PLAIN, LinkSecurity
from magnetar_core.security.refusals import meaning_of
from magnetar_core.shard_address import SHARD_KEY, ShardAddress
from magnetar_core.stream_offers import OFFER_KEY, WISH_KEY, WISH_PLAIN, WISH_TLS
from magnetar_core.stream_taking import StreamUnreachable, Unreachable, take
from magnetar_core.transport import LinkClosed, LinkRefused
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)

PACKAGE = "magnetar.v1"
# An idle peer gets a keepalive ping after this interval, and must answer within the timeout.
KEEPALIVE_INTERVAL_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
# gRPC itself refuses larger messages. Joined and enveloped frames need some room.
GRPC_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + (1 << 20)
# A server that accepts a conversation sends this key in the initial metadata; a refusal has no such
# key.
ACCEPTED_KEY = "magnetar-service"
OUTBOX_BYTES_HIGH = 4 << 20
# The last frames of a stream may come after the end of its gRPC stream; this much later they are
# lost.
LAST_FRAMES_WITHIN_S = 1.0

RECEIVE_LIMIT = "grpc.max_receive_message_length"
COMMON_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    (RECEIVE_LIMIT, GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Flow control windows large enough for batches in flight.
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
)
CHANNEL_OPTIONS = (
    *COMMON_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
)

ExchangeCall = grpc.aio.StreamStreamCall[bytes, bytes]


def exchange_method(service: str) -> str:
    """Return the full gRPC name of a service's stream."""
    return f"/{PACKAGE}.{service}/Exchange"


class GrpcTransport:
    """Transport that reaches servers over gRPC.

    Args:
        security: TLS, and the token that servers want; by default the conversation is plain text,
            which is for loopback and for trusted networks.
        connect_timeout_ms: how long an address may neither accept nor refuse before it counts as
            dead.
        wants_streams: whether frames may move to streams of their own, where a server offers them.
    """

    def __init__(
        self,
        security: LinkSecurity = PLAIN,
        *,
        connect_timeout_ms: float = 5_000,
        wants_streams: bool = True,
    ) -> None:
        self._security = security
        self._wants_streams = wants_streams
        self._unreachable = Unreachable()
        self._connect_timeout_ms = connect_timeout_ms
        self._links: set[GrpcLink] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> GrpcLink:
        """Open a conversation.

        Raises:
            LinkClosed: no server answers there, or it has no such service, or not the shard.
            LinkRefused: TLS or credentials do not fit.
        """
        if self._closed:
            raise LinkClosed("the transport is closed")
        server, metadata = _destination(address)
        try:
            metadata += self._security.metadata(server)
            asks = self._wants_streams and server not in self._unreachable
            kind = WISH_PLAIN if self._security.tls is None else WISH_TLS
            wish = ((WISH_KEY, kind),) if asks else ()
            try:
                opened = await self._open(address, server, service, metadata + wish)
            except StreamUnreachable as error:
                self._unreachable.note(server, error)
                opened = await self._open(address, server, service, metadata)
        except InvalidConfig as error:
            raise LinkRefused(f"cannot talk to {address}: {error}") from None
        link = GrpcLink(address, opened.call, opened.stream, on_frame, on_closed)
        self._links.add(link)
        self._spawn(self._run(link, opened.channel))
        return link

    async def close(self) -> None:
        """End all conversations, and wait until their on_closed has been called."""
        self._closed = True
        for link in list(self._links):
            link.close()
        while self._tasks:
            # Not gather: from Python 3.12 on it returns at once when all are done, and the
            # callbacks that empty the set would never have their turn.
            await asyncio.wait(list(self._tasks))

    async def _open(
        self, address: str, server: str, service: str, metadata: tuple[tuple[str, str], ...]
    ) -> _Opened:
        """Begin a conversation, and move it if the server offers that.

        Raises:
            StreamUnreachable: the server offers a stream, and it cannot be reached.
            LinkClosed, LinkRefused: as connect.
            InvalidConfig: TLS files or tokens cannot be read.
        """
        channel = self._channel(server)
        tls = self._security.tls is not None
        call: ExchangeCall | None = None
        try:
            method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
                exchange_method(service)
            )
            call = method(metadata=metadata)
            async with asyncio.timeout(self._connect_timeout_ms / 1_000):
                offer = await _accepted(call, address, tls=tls)
            stream = None
            if offer is not None:
                stream = await take(server, offer, GRPC_MESSAGE_BYTES_MAX, tls=tls)
        except BaseException as error:
            if call is not None:
                call.cancel()
            self._spawn(channel.close())
            if isinstance(error, TimeoutError):
                raise LinkClosed(
                    f"{address} did not answer within {self._connect_timeout_ms:.0f} ms"
                ) from None
            raise
        return _Opened(channel, call, stream)

    def _channel(self, address: str) -> grpc.aio.Channel:
        credentials = self._security.credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        options = (*CHANNEL_OPTIONS, *self._security.options())
        return grpc.aio.secure_channel(address, credentials, options=options)

    async def _run(self, link: GrpcLink, channel: grpc.aio.Channel) -> None:
        try:
            await link.run()
        finally:
            self._links.discard(link)
            await channel.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Opened(NamedTuple):
    channel: grpc.aio.Channel
    call: ExchangeCall
    stream: FrameStream | None


def _destination(address: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the server's address, and the metadata that names a shard of it."""
    try:
        shard = ShardAddress.parse(address)
    except ValueError as error:
        raise LinkClosed(f"{address!r} is not an address: {error}") from None
    if shard is None:
        return address, ()
    if not shard.server:
        raise LinkClosed(f"nobody has shard {shard.place.shard} at the moment; look it up again")
    return shard.server, ((SHARD_KEY, str(shard.place)),)


async def _accepted(call: ExchangeCall, address: str, *, tls: bool) -> str | None:
    """Wait until the server accepts; return its offer of a stream, if it makes one."""
    metadata = {key: str(value) for key, value in await call.initial_metadata()}
    if ACCEPTED_KEY in metadata:
        return metadata.get(OFFER_KEY)
    # gRPC names the reason at the end of its text.
    reason = (await call.details()).rpartition("last error: ")[2]
    if await call.code() is grpc.StatusCode.UNAUTHENTICATED:
        raise LinkRefused(f"{address} refuses this client: {reason}")
    meaning = meaning_of(reason, tls=tls)
    if meaning is not None:
        # In plain text a server that is just ending looks the same: that passes.
        kind = LinkRefused if tls else LinkClosed
        raise kind(f"cannot talk to {address}: {reason}; {meaning}")
    raise LinkClosed(f"cannot talk to {address}: {reason}")


class GrpcLink:
    """Client's end of a stream."""

    def __init__(
        self,
        address: str,
        call: ExchangeCall,
        stream: FrameStream | None,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._address = address
        # None: the link has ended. gRPC keeps the TCP connection of a closed channel for as long as
        # there is a reference to one of its calls.
        self._call: ExchangeCall | None = call
        self._stream = stream
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._outbox = Outbox(OUTBOX_BYTES_HIGH)
        self._turns = Turns()
        self._closed = False

    def write(self, frame: bytes) -> None:
        """Queue a serialized frame. Does nothing after close."""
        if not self._closed:
            self._outbox.put(frame)

    async def drain(self) -> None:
        """Wait while too much is queued."""
        await self._outbox.drain()

    def close(self) -> None:
        """End the conversation. Repeating it is harmless."""
        self._closed = True
        self._outbox.close()
        self._cancel_call()
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> None:
        """Carry frames both ways until the conversation ends, then call on_closed."""
        assert self._call is not None
        self._call.add_done_callback(self._call_ended)
        carrier = self._call if self._stream is None else self._stream
        sender = asyncio.get_running_loop().create_task(self._send(carrier))
        try:
            await self._receive(carrier)
        finally:
            self.close()
            self._call = None
            sender.cancel()
            self._on_closed()

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _call_ended(self, _call: object) -> None:
        if self._stream is not None:
            asyncio.get_running_loop().call_later(LAST_FRAMES_WITHIN_S, self._stream.close)

    async def _receive(self, carrier: ExchangeCall | FrameStream) -> None:
        try:
            while is_frame(data := await carrier.read()):
                await self._hand_over(pb.Frame.FromString(data))
        except grpc.aio.AioRpcError as error:
            log.debug("the link to %s broke: %s", self._address, error.details())
        except asyncio.CancelledError:
            # Our own close() also arrives as a cancellation; only a cancellation of the task is
            # raised again.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except DecodeError:
            log.warning("%s sent bytes that are not a frame; the link is closed", self._address)
        except Exception:
            log.exception("a frame from %s could not be handled", self._address)

    async def _hand_over(self, frame: pb.Frame) -> None:
        async for part in self._turns.of(frame):
            if self._closed:
                return
            self._on_frame(part)

    async def _send(self, carrier: ExchangeCall | FrameStream) -> None:
        try:
            while (frame := await self._outbox.take()) is not None:
                await carrier.write(frame)
        except (StreamEnded, grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The receiving task learns the reason.
            self._cancel_call()
