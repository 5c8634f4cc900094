"""A proxy between a client and a server on this machine, which loses or delays what it is told to.

It runs on a thread of its own, so that it works for blocking clients and for those on event loops.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tests.waiting import pace


class TcpProxy:
    """Passes bytes on, both ways.

    Attributes:
        delay_s: how long each answer is held back.
        lose_answers: decides by the beginning of a request whether its answer is lost: the server
            gets the request, and the client a closed connection.
    """

    def __init__(self, port_of_server: int, port: int = 0) -> None:
        self._port_of_server = port_of_server
        self.delay_s = 0.0
        self.lose_answers: Callable[[bytes], bool] = lambda request: False
        self.lost_count = 0
        self.port = port
        self._ready = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self._stop()
        self._thread.join()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = lambda: _call(loop, stopped.set)
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await stopped.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connected(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._port_of_server)
        except OSError:
            to_client.close()
            return
        losing = asyncio.Event()
        forward = asyncio.ensure_future(self._requests(client, to_server, losing))
        try:
            await self._answers(server, to_client, losing)
        except OSError:
            pass
        finally:
            forward.cancel()
            to_server.close()
            to_client.close()

    async def _requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while request := await client.read(1 << 16):
            if self.lose_answers(request):
                losing.set()
            to_server.write(request)
            await to_server.drain()
        to_server.write_eof()

    async def _answers(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while answer := await server.read(1 << 16):
            if losing.is_set():
                self.lost_count += 1
                return
            await pace(self.delay_s)
            to_client.write(answer)
            await to_client.drain()


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(what)
