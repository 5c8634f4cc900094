"""A collector of spans for tests: a small server that decodes OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector:
    """A collector that keeps all spans that it receives.

    Attributes:
        url: where spans go.
        headers: of the last request.
        hanging: set: requests are taken and get no answer until `released`.
    """

    def __init__(self) -> None:
        self.url = ""
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []
        self.status = 200
        self.hanging = False
        self.released = threading.Event()
        self.arrived = threading.Event()
        self._requests: list[Any] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self._requests.append(ExportTraceServiceRequest.FromString(body))
        self.headers = headers
        self.paths.append(path)
        self.arrived.set()
        if self.hanging:
            self.released.wait()

    def spans(self) -> list[Any]:
        return [
            span
            for request in self._requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        """The attributes of the process that sent the first spans."""
        found = self._requests[0].resource_spans[0].resource.attributes
        return {one.key: one.value.string_value for one in found}


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a port of its own."""
    one = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            one.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            try:
                self.send_response(one.status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # The client had no patience.

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    one.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield one
    finally:
        one.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
