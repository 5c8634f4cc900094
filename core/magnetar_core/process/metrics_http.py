"""HTTP server for metrics: its connections are limited in number, and may not be silent."""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

log = logging.getLogger(__name__)

# A client that sends nothing for so long, before its request is whole, is disconnected.
REQUEST_SECONDS: Final = 5.0


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Server with a thread for each connection.

    Args:
        connections_max: further connections are closed at once.
    """

    daemon_threads = True

    def __init__(
        self, family: int, address: tuple[str, int], connections_max: int, *, request_seconds: float
    ) -> None:
        self.address_family = family
        self._room = threading.Semaphore(connections_max)

        class Handler(WSGIRequestHandler):
            timeout = request_seconds

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: Prometheus asks every few seconds."""

        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a new thread; close it if there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and make room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing to stderr: the client has gone, or was too slow."""
        log.debug("a request for metrics from %s has failed", client_address, exc_info=True)


def serve(
    registry: CollectorRegistry,
    host: str,
    port: int,
    connections_max: int,
    *,
    request_seconds: float = REQUEST_SECONDS,
) -> MetricsServer:
    """Return a server that listens; the caller runs its serve_forever().

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, _, _, _, address = found[0]
    server = MetricsServer(
        family, (str(address[0]), port), connections_max, request_seconds=request_seconds
    )
    server.set_app(make_wsgi_app(registry))
    return server
