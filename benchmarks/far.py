"""A proxy that makes a server seem far away: `python -m benchmarks.far PORT --delay-ms 30`.

Every answer arrives so much later; answers of a connection do not wait for each other. It is a
process of its own, which prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from typing import cast

import click

from benchmarks.runner import run


class _Server(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own have no classes in common with asyncio's.
        self._client.connected(cast(asyncio.WriteTransport, transport))

    def data_received(self, data: bytes) -> None:
        self._client.answer_later(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.answer_later(None)


class _Client(asyncio.Protocol):
    """The connection of a client."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._port = port
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.WriteTransport | None = None
        self._waiting: list[bytes] = []
        self._answers: deque[bytes | None] = deque()
        self._connecting: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        connect = self._loop.create_connection(lambda: _Server(self), "127.0.0.1", self._port)
        self._connecting = self._loop.create_task(connect)

    def connected(self, server: asyncio.WriteTransport) -> None:
        self._server = server
        server.writelines(self._waiting)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self._server is not None:
            self._server.write(data)
        else:
            self._waiting.append(data)

    def answer_later(self, data: bytes | None) -> None:
        self._answers.append(data)
        self._loop.call_later(self._delay_s, self._answer)

    def _answer(self) -> None:
        data = self._answers.popleft()
        if data is None:
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._server is not None:
            self._server.close()


async def _serve(port: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(port, delay_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # It ends with the process that started it.
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def far(port: int, delay_ms: float) -> Iterator[int]:
    """Run a proxy for the time of the block; the port to use in place of the server's."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.far", str(port), "--delay-ms", str(delay_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.communicate()


@click.command()
@click.argument("port", type=int)
@click.option("--delay-ms", type=float, default=30.0)
def main(port: int, delay_ms: float) -> None:
    run(_serve(port, delay_ms / 1_000))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.far")
