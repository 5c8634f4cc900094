"""The least that a server needs: a stream of raw frames, and one group commit for all of it.

A frame is any number of commands, each a struct and a payload. Everything that became ready in one
turn of the event loop leaves in one frame.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator

from magnetar_core.config import FRAME_BYTES_MAX, split_address
from magnetar_core.transport.frame_stream import FrameStream
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import WriteBatch

# Request number, what is asked, a number that it is asked about, length of the payload.
_HEAD = struct.Struct("<QBQI")
ROWS = "rows"

Command = tuple[int, int, int, bytes]


def pack(number: int, kind: int, about: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(number, kind, about, len(payload)) + payload


def unpack(frame: bytes) -> Iterator[Command]:
    # A stream may give a bytearray, which the store does not take.
    frame = bytes(frame)
    at = 0
    while at < len(frame):
        number, kind, about, size = _HEAD.unpack_from(frame, at)
        at += _HEAD.size
        yield number, kind, about, frame[at : at + size]
        at += size


class Outgoing:
    """Gathers commands until the end of the loop's turn; one task writes them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._ready = asyncio.Event()

    def put(self, command: bytes) -> None:
        self._parts.append(command)
        self._ready.set()

    async def take(self) -> bytes:
        await self._ready.wait()
        await asyncio.sleep(0)
        self._ready.clear()
        parts, self._parts = self._parts, []
        return b"".join(parts)


class BareCommit:
    """Write and sync what was put, then call back; the next group fills meanwhile."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self._batch = WriteBatch()
        self._parked: list[Callable[[], None]] = []
        self._ready = asyncio.Event()

    def put(self, key: bytes, value: bytes, then: Callable[[], None] | None = None) -> None:
        self._batch.put(ROWS, key, value)
        if then is not None:
            self._parked.append(then)
        self._ready.set()

    def delete(self, key: bytes) -> None:
        self._batch.delete(ROWS, key)

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            await asyncio.sleep(0)
            self._ready.clear()
            batch, self._batch = self._batch, WriteBatch()
            parked, self._parked = self._parked, []
            await self._store.write(batch)
            await self._store.sync()
            for then in parked:
                then()


class Peer:
    """The client's end: requests with callbacks."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._outgoing = Outgoing()
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._count = 0
        self._tasks = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._receive())]

    @classmethod
    async def connect(cls, address: str) -> Peer:
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: FrameStream(FRAME_BYTES_MAX), *split_address(address)
        )
        return cls(stream)

    def ask(self, kind: int, about: int, payload: bytes, then: Callable[[int], None]) -> None:
        self._count += 1
        self._waiting[self._count] = then
        self._outgoing.put(pack(self._count, kind, about, payload))

    async def wait(self, kind: int, about: int, payload: bytes = b"") -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ask(kind, about, payload, future.set_result)
        return await future

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._stream.close()

    async def _send(self) -> None:
        while True:
            await self._stream.write(await self._outgoing.take())

    async def _receive(self) -> None:
        while (frame := await self._stream.read()) is not None:
            for number, _, about, _ in unpack(frame):
                self._waiting.pop(number)(about)


Handler = Callable[[Command, Callable[[int], None]], None]


async def serve(port: int, handle: Handler) -> None:
    """Answer for ever. A handler is given a command and what sends its reply."""

    async def exchange(stream: FrameStream) -> None:
        outgoing = Outgoing()

        async def send() -> None:
            while True:
                await stream.write(await outgoing.take())

        sender = asyncio.ensure_future(send())
        try:
            while (frame := await stream.read()) is not None:
                for command in unpack(frame):
                    number = command[0]

                    def reply(about: int, number: int = number) -> None:
                        outgoing.put(pack(number, 0, about))

                    handle(command, reply)
        finally:
            sender.cancel()

    exchanges: set[asyncio.Task[None]] = set()

    def connected(stream: FrameStream) -> None:
        exchanges.add(asyncio.ensure_future(exchange(stream)))

    server = await asyncio.get_running_loop().create_server(
        lambda: FrameStream(FRAME_BYTES_MAX, connected), "127.0.0.1", port
    )
    print("ready", flush=True)
    await server.serve_forever()
