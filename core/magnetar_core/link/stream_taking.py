"""Takes a server's offer to move a conversation's frames to a stream, for the client.

Source: docs/design/0020-frame-streams.md.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar_core.config import split_address
from magnetar_core.link.dialing import dial
from magnetar_core.security.stream_tls import client_context, has_fingerprint
from magnetar_core.transport.frame_stream import FrameStream, StreamEnded
from magnetar_core.transport.stream_offers import WELCOME
from magnetar_core.transport.transport import LinkClosed

log = logging.getLogger(__name__)

# A firewall between the two may swallow what goes to a port that it does not know.
TAKEN_WITHIN_S: Final = 1.0
# Pause before this process tries again to reach the streams of a server.
LEFT_ALONE_S: Final = 60.0


class StreamUnreachable(LinkClosed):
    """The offer came, and the stream cannot be reached. Nothing was sent."""


async def take(server: str, offer: str, frame_bytes_max: int, *, tls: bool) -> FrameStream:
    """Take an offer.

    Args:
        server: the address at which the conversation began, "host:port".
        offer: the server's text.
        frame_bytes_max: the largest frame of the server.
        tls: whether the conversation began with TLS. Then the stream has it, too, or is not taken.
    Raises:
        StreamUnreachable: no server that knows the offer answers.
    """
    port, _, rest = offer.partition(" ")
    ticket, _, fingerprint = rest.partition(" ")
    stream: FrameStream | None = None
    try:
        host, _ = split_address(server)
        async with asyncio.timeout(TAKEN_WITHIN_S):
            # No name is looked for in the certificate: it is known by its fingerprint.
            stream = await dial(
                lambda: FrameStream(frame_bytes_max),
                host,
                int(port),
                tls=client_context() if tls else None,
            )
            if tls and not has_fingerprint(stream.tls, fingerprint):
                raise StreamEnded("it has another certificate")
            await stream.write(ticket.encode())
            if await stream.read() != WELCOME:
                raise StreamEnded("it does not know the ticket")
    except BaseException as error:
        if stream is not None:
            stream.close()
        # The address and the port may be impossible ones.
        if isinstance(error, OSError | ValueError | OverflowError):
            why = str(error) or "no answer"
            raise StreamUnreachable(f"the streams of {server} at port {port}: {why}") from None
        raise
    stream.beat()
    return stream


class Unreachable:
    """The servers whose streams could not be reached lately: frames stay in gRPC there."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def note(self, server: str, error: StreamUnreachable) -> None:
        """Leave the streams of a server alone for a while."""
        log.info("%s; the conversation goes on in gRPC, which takes more processor time", error)
        self._until_s[server] = asyncio.get_running_loop().time() + LEFT_ALONE_S

    def __contains__(self, server: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        return now_s < self._until_s.get(server, now_s)
