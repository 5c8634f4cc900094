"""Offers of a server to move a conversation's frames from gRPC to a stream of their own.

Who the client is, and whether it may come in, was decided in gRPC. A ticket that the server gave
there, and that can be used once, tells which conversation a connection belongs to.
Source: docs/design/0020-frame-streams.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from typing import Final

from magnetar_core.config import InvalidConfig, join_address
from magnetar_core.security.stream_tls import StreamCertificate
from magnetar_core.transport.bound_sockets import bound_sockets
from magnetar_core.transport.frame_stream import FrameStream

log = logging.getLogger(__name__)

# In the metadata of a call: the client can take its frames to a stream; where, and its ticket.
WISH_KEY: Final = "magnetar-wants-stream"
# The request of the client: it never takes a stream in plain text when it talks TLS to gRPC.
WISH_PLAIN: Final = "1"
WISH_TLS: Final = "tls"
OFFER_KEY: Final = "magnetar-stream"
# The answer to a ticket.
WELCOME: Final = b"welcome"
# How long a client may take, from the offer to the connection, and from the connection to the
# ticket.
TAKEN_WITHIN_S: Final = 5.0
# Pause while the process cannot open another connection.
ACCEPTED_AGAIN_S: Final = 1.0
_TICKET_BYTES: Final = 16


class Offer:
    """The offer to one conversation to move its frames.

    Attributes:
        text: what the client is told: the port, the ticket, and with TLS the fingerprint of the
            certificate, with spaces between.
        ticket: what the client shows on its connection.
    """

    def __init__(self, offers: StreamOffers, ticket: str, text: str) -> None:
        self.text = text
        self.ticket = ticket
        self._offers = offers
        self._stream: asyncio.Future[FrameStream] = asyncio.get_running_loop().create_future()

    async def taken(self) -> FrameStream:
        """Wait for the client's connection.

        Raises:
            TimeoutError: the client does not come.
        """
        async with asyncio.timeout(TAKEN_WITHIN_S):
            return await self._stream

    def withdraw(self) -> None:
        """Refuse further connections, and end the one that was taken. May be repeated.

        It may have come when the conversation was just about to end, so that no other task has it.
        """
        self._offers.forget(self)
        if not self._stream.cancel() and not self._stream.cancelled():
            self._stream.result().close()

    def take(self, stream: FrameStream) -> bool:
        """Note the client's connection; False if the conversation no longer waits for it."""
        if self._stream.done():
            return False
        self._stream.set_result(stream)
        stream.beat()
        return True


class StreamOffers:
    """A port for streams, and the offers whose clients have not come yet.

    Args:
        host: where to listen.
        port: 0 lets the operating system choose.
        frame_bytes_max: the largest frame of a client.
        certificate: what connections talk TLS with; None: they are plain text.
        streams_max: how many conversations are made an offer at a time.
        strangers_max: connections that have shown no ticket yet; others are closed at once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        frame_bytes_max: int,
        certificate: StreamCertificate | None = None,
        *,
        streams_max: int,
        strangers_max: int,
    ) -> None:
        self._host = host
        self._port = port
        self._frame_bytes_max = frame_bytes_max
        self._certificate = certificate
        self._streams_max = streams_max
        self._strangers_max = strangers_max
        # By ticket.
        self._offers: dict[str, Offer] = {}
        # Also those whose clients have come, and others that are not withdrawn.
        self._valid: set[Offer] = set()
        # One for each address.
        self._listening: list[asyncio.Task[None]] = []
        self._greetings: set[asyncio.Task[None]] = set()

    @property
    def wish(self) -> str:
        """The request that a client makes to get an offer."""
        return WISH_PLAIN if self._certificate is None else WISH_TLS

    async def open(self) -> None:
        """Take the port.

        Raises:
            InvalidConfig: it is taken, or not an address of this machine.
        """
        loop = asyncio.get_running_loop()
        try:
            for bound in await bound_sockets(self._host, self._port):
                self._port = bound.getsockname()[1]
                self._listening.append(loop.create_task(self._listen(bound)))
        except OSError as error:
            asked = join_address(self._host, self._port)
            raise InvalidConfig(
                f"cannot listen for streams at {asked}: {error.strerror}; choose another"
                " stream_port, or 0 for any"
            ) from error

    def offer(self) -> Offer | None:
        """Make an offer to a conversation, which ends with withdraw().

        None: the port is closed, or there are too many streams.
        """
        if not self._listening or len(self._valid) >= self._streams_max:
            return None
        ticket = secrets.token_hex(_TICKET_BYTES)
        text = f"{self._port} {ticket}"
        if self._certificate is not None:
            self._certificate.refresh()
            text += f" {self._certificate.fingerprint}"
        offer = self._offers[ticket] = Offer(self, ticket, text)
        self._valid.add(offer)
        return offer

    def forget(self, offer: Offer) -> None:
        """Refuse connections with an offer's ticket from now on. Repeating it is harmless."""
        self._offers.pop(offer.ticket, None)
        self._valid.discard(offer)

    def close(self) -> None:
        """Stop making offers and taking connections. Streams of conversations go on."""
        listening, self._listening = self._listening, []
        for task in (*listening, *self._greetings):
            task.cancel()

    async def _listen(self, bound: socket.socket) -> None:
        """Accept connections. If there are too many, they are refused before TLS begins."""
        loop = asyncio.get_running_loop()
        with bound:
            bound.setblocking(False)
            while True:
                try:
                    connection, _ = await loop.sock_accept(bound)
                except ConnectionAbortedError:
                    # The client is gone again: the next connections must not wait for it.
                    continue
                except OSError as error:
                    log.error(
                        "connections to the port of streams cannot be accepted at the moment: %s; "
                        "if too many files are open, raise the limit (ulimit -n)",
                        error,
                    )
                    await asyncio.sleep(ACCEPTED_AGAIN_S)
                    continue
                if len(self._greetings) >= self._strangers_max:
                    connection.close()
                    continue
                greeting = loop.create_task(self._greet(connection))
                self._greetings.add(greeting)
                greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, connection: socket.socket) -> None:
        context = None if self._certificate is None else self._certificate.context
        stream = FrameStream(2 * _TICKET_BYTES)
        is_taken = False
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: stream, connection, ssl=context
                )
                ticket = await stream.read()
                offer = self._offers.pop((ticket or b"").decode("ascii", "replace"), None)
                if offer is not None:
                    stream.raise_frame_limit(self._frame_bytes_max)
                    await stream.write(WELCOME)
                    is_taken = offer.take(stream)
        except (TimeoutError, OSError) as error:
            log.debug("a connection to the port of streams has ended: %s", error)
        finally:
            if not is_taken:
                log.debug("%s has no ticket for a stream", stream.peer)
                stream.close()
