"""Transport between real processes: a conversation is a bidirectional gRPC call.

Its frames move to a stream of their own where the server offers one and it can be reached. The call
stays, and the conversation ends with either of the two: it says why a server ends it.

Each link has a connection of its own, so that a broken link is noticed at once. The caller decides
when to try again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from google.protobuf.message import DecodeError

from magnetar_core.config import FRAME_BYTES_MAX, InvalidConfig
from magnetar_core.errors import InvalidArgument
from magnetar_core.link.client_call import (
    UNAUTHENTICATED,
    UNIMPLEMENTED,
    CallEnded,
    CallRefused,
    ClientCall,
    Metadata,
    NotGrpc,
    begin,
)
from magnetar_core.link.stream_taking import StreamUnreachable, Unreachable, take
from magnetar_core.membership.shard_address import SHARD_KEY, ShardAddress
from magnetar_core.security.link_security import PLAIN, LinkSecurity
from magnetar_core.security.tls_failures import meaning_of
from magnetar_core.transport.frame_stream import FrameStream, StreamEnded, is_frame
from magnetar_core.transport.frames import Carried, Turns
from magnetar_core.transport.outbox import Outbox
from magnetar_core.transport.stream_offers import OFFER_KEY, WISH_KEY, WISH_PLAIN, WISH_TLS
from magnetar_core.transport.transport import LinkClosed, LinkRefused
from magnetar_core.wire import service_pb2 as pb

log = logging.getLogger(__name__)

PACKAGE = "magnetar.v1"
# Joined and enveloped frames need some room beyond the largest frame.
GRPC_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + (1 << 20)
# A server that accepts a conversation sends this key in the initial metadata; a refusal has no such
# key.
ACCEPTED_KEY = "magnetar-service"
OUTBOX_BYTES_HIGH = 4 << 20
# The last frames of a stream may come after the end of its call; this much later they are lost.
LAST_FRAMES_WITHIN_S = 1.0


def exchange_method(service: str) -> str:
    """Return the full gRPC name of a service's stream."""
    return f"/{PACKAGE}.{service}/Exchange"


class GrpcTransport:
    """Transport that reaches servers over gRPC.

    Args:
        security: TLS, and the token that servers ask for; by default the conversation is plain
            text, which is for loopback and for trusted networks.
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
            LinkRefused: TLS or credentials do not fit, or another program listens there.
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
        call, stream = opened
        link = GrpcLink(address, call, stream, on_frame, on_closed)
        self._links.add(link)
        self._spawn(self._run(link))
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
        self, address: str, server: str, service: str, metadata: Metadata
    ) -> tuple[ClientCall, FrameStream | None]:
        """Begin a conversation, and move it if the server offers that.

        Raises:
            StreamUnreachable: the server offers a stream, and it cannot be reached.
            LinkClosed, LinkRefused: as connect.
            InvalidConfig: TLS files or tokens cannot be read.
        """
        call, answer = await _accepted(
            address,
            server,
            exchange_method(service),
            metadata,
            self._security,
            timeout_ms=self._connect_timeout_ms,
        )
        try:
            if ACCEPTED_KEY not in answer:
                raise LinkClosed(f"cannot talk to {address}: no server of Magnetar answers there")
            offer = answer.get(OFFER_KEY)
            if offer is None:
                return call, None
            tls = self._security.tls is not None
            return call, await take(server, offer, GRPC_MESSAGE_BYTES_MAX, tls=tls)
        except BaseException:
            call.close()
            raise

    async def _run(self, link: GrpcLink) -> None:
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _destination(address: str) -> tuple[str, Metadata]:
    """Return the server's address, and the metadata that names a shard of it."""
    try:
        shard = ShardAddress.parse(address)
    except ValueError as error:
        raise LinkClosed(f"{address!r} is not an address: {error}") from None
    if shard is None:
        return address, ()
    if not shard.server:
        raise LinkClosed(f"no server has shard {shard.place.shard} at the moment; look it up again")
    return shard.server, ((SHARD_KEY, str(shard.place)),)


async def ask(
    server: str, path: str, request: bytes, security: LinkSecurity, *, timeout_ms: float
) -> bytes:
    """Make a call with one message each way; return the answer.

    Args:
        server: its address, "host:port".
        path: names the method, as "/package.Service/Method".
    Raises:
        LinkClosed: there is no answer.
        LinkRefused: TLS or credentials do not fit, or another program listens there.
        InvalidConfig: TLS files or tokens cannot be read.
    """
    metadata = security.metadata(server)
    call, _ = await _accepted(
        server, server, path, metadata, security, timeout_ms=timeout_ms, request=request
    )
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            answer = await call.read()
            if answer is None:
                raise _closed(server, CallRefused(await call.ended()), tls=False)
            return answer
    except TimeoutError:
        raise LinkClosed(f"{server}: no answer within {timeout_ms:.0f} ms") from None
    finally:
        call.close()


async def _accepted(
    address: str,
    server: str,
    path: str,
    metadata: Metadata,
    security: LinkSecurity,
    *,
    timeout_ms: float,
    request: bytes | None = None,
) -> tuple[ClientCall, dict[str, str]]:
    """Begin a call, and wait until the server accepts it.

    Args:
        request: the only message, if there is no other one.
    Returns:
        The call, and the metadata of the answer.
    Raises:
        LinkClosed, LinkRefused: it does not.
    """
    call: ClientCall | None = None
    tls = security.context()
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            call = await begin(
                server,
                path,
                metadata,
                GRPC_MESSAGE_BYTES_MAX,
                tls=tls,
                server_name=security.server_name,
            )
            if request is not None:
                await call.write(request)
                call.finish()
            return call, await call.accepted()
    except BaseException as error:
        if call is not None:
            call.close()
        if isinstance(error, TimeoutError) and not error.errno:
            # Not the operating system's, which has given up by itself.
            does = "cannot be reached" if call is None else "accepts connections, and is silent"
            raise LinkClosed(f"{address} {does}: no answer within {timeout_ms:.0f} ms") from None
        if isinstance(error, OSError):
            raise _closed(address, error, tls=tls is not None) from None
        raise


def _closed(address: str, error: OSError, *, tls: bool) -> LinkClosed:
    """Return the error of a conversation that could not be opened."""
    if isinstance(error, CallRefused):
        code, reason = error.status
        if code == UNAUTHENTICATED:
            return LinkRefused(f"{address} refuses this client: {reason}")
        if code == UNIMPLEMENTED:
            return LinkRefused(
                f"cannot talk to {address}: another service answers there ({reason}); connect to"
                " the port of a broker",
                InvalidArgument,
            )
        return LinkClosed(f"cannot talk to {address}: {reason}")
    if isinstance(error, NotGrpc):
        return LinkRefused(f"cannot talk to {address}: {error}", InvalidArgument)
    is_of_tls = isinstance(error, ssl.SSLError)
    reason = os.strerror(error.errno) if error.errno and not is_of_tls else str(error)
    meaning = meaning_of(reason, tls=tls)
    if meaning is not None:
        # In plain text a server that is just ending looks the same: that passes.
        kind = LinkRefused if tls else LinkClosed
        return kind(f"cannot talk to {address}: {reason}; {meaning}")
    return LinkClosed(f"cannot talk to {address}: {reason}")


class GrpcLink:
    """Client's end of a stream."""

    def __init__(
        self,
        address: str,
        call: ClientCall,
        stream: FrameStream | None,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._address = address
        self._call = call
        self._stream = stream
        self._carrier: ClientCall | FrameStream = call if stream is None else stream
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
        self._call.close()
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> None:
        """Carry frames both ways until the conversation ends, then call on_closed."""
        self._call.when_ended(self._call_ended)
        sender = asyncio.get_running_loop().create_task(self._send())
        try:
            await self._receive()
        finally:
            self.close()
            sender.cancel()
            self._on_closed()

    def _call_ended(self) -> None:
        if self._stream is not None:
            asyncio.get_running_loop().call_later(LAST_FRAMES_WITHIN_S, self._stream.close)

    async def _receive(self) -> None:
        try:
            while is_frame(data := await self._carrier.read()):
                await self._hand_over(pb.Frame.FromString(data))
        except DecodeError:
            log.warning("%s sent bytes that are not a frame; the link is closed", self._address)
        except Exception:
            log.exception("a frame from %s could not be handled", self._address)

    async def _hand_over(self, frame: pb.Frame) -> None:
        async for part in self._turns.of(frame):
            if self._closed:
                return
            self._on_frame(part)

    async def _send(self) -> None:
        try:
            while (frame := await self._outbox.take()) is not None:
                await self._carrier.write(frame)
        except (CallEnded, StreamEnded):
            # The receiving task learns of it, too.
            self._call.close()
