"""Port for Kafka's clients: it accepts connections, with TLS if the server has a certificate.

A connection that is one too many is closed before TLS begins.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from magnetar_core.transport.bound_sockets import bound_sockets
from magnetar_kafka.connection import Connection, Server
from magnetar_kafka.security.port_tls import PortTls

log = logging.getLogger(__name__)

# After a failure to accept, for example because too many files are open.
ACCEPTED_AGAIN_S = 0.1


class Port:
    """A port.

    Args:
        tls: None: connections are plain text.
        is_external: whether it is the one for clients outside.
    """

    def __init__(self, server: Server, tls: PortTls | None, *, is_external: bool = False) -> None:
        self._server = server
        self._is_external = is_external
        self._tls = tls
        # One for each address of the host.
        self._listening: list[asyncio.Task[None]] = []
        # TLS of them has not ended its handshake.
        self._greetings: set[asyncio.Task[None]] = set()
        self.number = 0

    async def open(self, host: str, port: int) -> None:
        """Open the port.

        Args:
            port: 0: the operating system chooses.
        Raises:
            OSError: the port is taken, or the address is not one of this machine.
        """
        loop = asyncio.get_running_loop()
        for bound in await bound_sockets(host, port):
            self.number = bound.getsockname()[1]
            self._listening.append(loop.create_task(self._listen(bound)))

    def close(self) -> None:
        """Accept no further connections. Open ones go on."""
        listening, self._listening = self._listening, []
        for task in (*listening, *self._greetings):
            task.cancel()

    async def _listen(self, bound: socket.socket) -> None:
        loop, server = asyncio.get_running_loop(), self._server
        with bound:
            bound.setblocking(False)
            while True:
                try:
                    accepted, _ = await loop.sock_accept(bound)
                except ConnectionAbortedError:
                    continue
                except OSError as error:
                    log.error("connections of Kafka clients cannot be accepted now: %s", error)
                    await asyncio.sleep(ACCEPTED_AGAIN_S)
                    continue
                there_are = len(server.connections) + len(self._greetings)
                if there_are >= server.config.kafka_connections_max:
                    server.metrics.closed.labels("too_many").inc()
                    accepted.close()
                    continue
                greeting = loop.create_task(self._greet(accepted))
                self._greetings.add(greeting)
                greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, accepted: socket.socket) -> None:
        loop, server = asyncio.get_running_loop(), self._server
        context = None if self._tls is None else self._tls.context()
        try:
            async with asyncio.timeout(server.stranger_timeout_ms / 1000):
                await loop.connect_accepted_socket(
                    lambda: Connection(server, is_external=self._is_external),
                    accepted,
                    ssl=context,
                )
        except (TimeoutError, OSError) as error:
            # ssl.SSLError is an OSError.
            accepted.close()
            server.metrics.closed.labels("tls").inc()
            log.info("TLS with a Kafka client does not begin: %s", error)
        except asyncio.CancelledError:
            accepted.close()
            raise
