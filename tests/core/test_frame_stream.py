"""Frames over a bare connection: whole and in order, however the network cuts them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, cast

import pytest
import uvloop
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar_core.transport.frame_stream import (
    BEAT_S,
    BUFFER_BYTES,
    LENGTH_BYTES,
    ROOM_FACTOR,
    SILENT_BEATS_MAX,
    UNREAD_BYTES_HIGH,
    UNSENT_BYTES_HIGH,
    FrameStream,
    StreamEnded,
)

FRAME_BYTES_MAX = 4 << 20
Scenario = Callable[[], Coroutine[Any, Any, None]]


class FakeTransport:
    """What a stream says to its connection."""

    def __init__(self) -> None:
        self.sent = b""
        self.said: list[str] = []

    def get_extra_info(self, name: str) -> object:
        return socket.socket() if name == "socket" else ("10.0.0.1", 5)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high_bytes = high

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return "abort" in self.said

    def abort(self) -> None:
        self.said.append("abort")

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")


def connected(frame_bytes_max: int = FRAME_BYTES_MAX) -> tuple[FrameStream, FakeTransport]:
    stream, transport = FrameStream(frame_bytes_max), FakeTransport()
    stream.connection_made(cast(asyncio.BaseTransport, transport))
    return stream, transport


def feed(stream: FrameStream, data: bytes) -> bytes:
    """Give a stream as much as it has room for, as the event loop does; returns the rest."""
    room = stream.get_buffer(-1)
    count = min(len(room), len(data))
    room[:count] = data[:count]
    stream.buffer_updated(count)
    return data[count:]


def encoded(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(LENGTH_BYTES, "little") + frame for frame in frames)


async def read_all(stream: FrameStream) -> list[bytes]:
    """What can be read until the end of a connection that was lost."""
    frames = []
    while (frame := await stream.read()) is not None:
        frames.append(bytes(frame))
    return frames


def sizes(random: Random) -> list[int]:
    edges = [1, 2, 3, 4, 5, *(BUFFER_BYTES + step for step in range(-9, 10)), 1 << 20]
    return [
        random.choice(edges) if random.random() < 0.1 else random.randrange(1, 300)
        for _ in range(99)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_frames_arrive_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    """Two streams take turns: between two calls of one, the shared buffer is the other's."""
    random = Random(seed)
    sent = [[random.randbytes(size) for size in sizes(random)] for _ in range(2)]
    streams = [connected()[0] for _ in sent]
    left = [encoded(frames) for frames in sent]
    cuts = random.choice([(1, 2, 3, 4, 5), (1, 700, 70_000), (1 << 30,)])
    while any(left):
        for at, stream in enumerate(streams):
            if left[at]:
                piece = min(
                    random.choice(cuts) if len(left[at]) < 100_000 else 50_000, len(left[at])
                )
                rest = feed(stream, left[at][:piece])
                left[at] = rest + left[at][piece:]
    for frames, stream in zip(sent, streams, strict=True):
        stream.connection_lost(None)
        assert asyncio.run(read_all(stream)) == frames


def test_a_frame_of_the_limit_is_taken_and_a_larger_one_ends_the_connection() -> None:
    for begins_with in ([], [b"first"]):
        for size, is_taken in ((1_000, True), (1_001, False), ((1 << 32) - 1, False)):
            stream, transport = connected(1_000)
            length = size.to_bytes(LENGTH_BYTES, "little")
            feed(stream, encoded(begins_with) + length[:3])
            # Only with its last byte it is a length.
            assert not transport.said
            feed(stream, length[3:])
            assert transport.said == ([] if is_taken else ["abort"])
            assert stream._partial is None
            # And in one piece.
            stream, transport = connected(1_000)
            feed(stream, encoded(begins_with) + length + bytes(min(size, 1_001)))
            assert transport.said == ([] if is_taken else ["abort"])


def test_memory_is_taken_for_what_has_arrived() -> None:
    """Of a client that says how much it will send, and sends little of it."""
    size = 40 << 20
    frame = Random(1).randbytes(size)
    sent = size.to_bytes(LENGTH_BYTES, "little") + frame
    for piece in (10, 5_000, 300_000):
        stream, _ = connected(size)
        at = 0
        while at < len(sent):
            # In such pieces until it is clear what becomes of them.
            end = at + piece if at < 100 * piece else len(sent)
            at = min(end, len(sent)) - len(feed(stream, sent[at:end]))
            taken = len(stream._partial or b"") + len(stream._head)
            assert taken <= ROOM_FACTOR * at
        stream.connection_lost(None)
        assert asyncio.run(read_all(stream)) == [frame]


def test_the_other_side_waits_while_nobody_reads() -> None:
    async def scenario() -> None:
        stream, transport = connected()
        frame = bytes(100_000)
        count = UNREAD_BYTES_HIGH // len(frame)
        for _ in range(count):
            assert not feed(stream, encoded([frame]))
        assert transport.said == []
        feed(stream, encoded([frame]))
        feed(stream, encoded([frame]))
        assert transport.said == ["pause"]
        while transport.said == ["pause"]:
            await stream.read()
        assert transport.said == ["pause", "resume"]
        assert UNREAD_BYTES_HIGH // 2 - 100_000 < stream._unread_bytes <= UNREAD_BYTES_HIGH // 2

    asyncio.run(scenario())


def test_a_frame_counts_more_than_its_bytes() -> None:
    """Four megabytes of frames of two bytes were two million objects, and not full yet."""

    async def scenario() -> None:
        stream, transport = connected()
        tiny = encoded([b"12"] * 1_000)
        fed = 0
        while not transport.said:
            feed(stream, tiny)
            fed += 1_000
        assert fed < UNREAD_BYTES_HIGH // 32
        for _ in range(fed):
            assert await stream.read() == b"12"
        assert transport.said == ["pause", "resume"]
        assert stream._unread_bytes == 0

    asyncio.run(scenario())


def test_a_writer_waits_while_the_network_is_full_and_learns_of_the_end() -> None:
    async def scenario() -> None:
        stream, transport = connected()
        await stream.write(b"first")
        stream.pause_writing()
        writing = asyncio.ensure_future(stream.write(b"second"))
        await turns()
        assert not writing.done()
        # It is on its way, and waits for room for the next one.
        assert transport.sent == encoded([b"first", b"second"])
        stream.resume_writing()
        await writing
        stream.pause_writing()
        writing = asyncio.ensure_future(stream.write(b"third"))
        await turns()
        stream.connection_lost(ConnectionResetError())
        with pytest.raises(StreamEnded):
            await writing
        with pytest.raises(StreamEnded):
            await stream.write(b"fourth")

    asyncio.run(scenario())


def test_a_reader_that_waits_learns_of_the_end() -> None:
    async def scenario() -> None:
        stream, _ = connected()
        feed(stream, encoded([b"whole"]) + b"\x05\x00\x00\x00cut")
        assert await stream.read() == b"whole"
        reading = asyncio.ensure_future(stream.read())
        await turns()
        stream.connection_lost(None)
        # A frame whose end did not arrive is none.
        assert await reading is None
        assert await stream.read() is None

    asyncio.run(scenario())


def test_a_side_that_says_nothing_is_taken_for_gone() -> None:
    """A path that loses everything: the kernel would try for a quarter of an hour."""

    async def scenario() -> None:
        stream, transport = connected()
        stream.beat()
        await time_passes(BEAT_S + 1)
        # It says so itself, since it has written nothing.
        assert transport.sent == encoded([b""])
        for _ in range(5):
            feed(stream, encoded([b""]))
            await time_passes(BEAT_S * SILENT_BEATS_MAX)
        assert not transport.said
        feed(stream, encoded([b"", b"and an empty frame is none", b""]))
        assert await stream.read() == b"and an empty frame is none"
        assert not stream._frames
        await time_passes(BEAT_S * (SILENT_BEATS_MAX + 2))
        assert transport.said == ["abort"]
        sent = transport.sent
        await time_passes(BEAT_S * 3)
        assert transport.sent == sent

    run_in_virtual_time(scenario())


def test_whoever_writes_or_cannot_need_not_say_that_it_is_there() -> None:
    async def scenario() -> None:
        stream, transport = connected()
        stream.beat()
        for _ in range(4):
            await stream.write(b"a frame")
            await time_passes(BEAT_S)
            feed(stream, encoded([b""]))
        assert transport.sent == encoded([b"a frame"] * 4)
        stream.pause_writing()
        await time_passes(BEAT_S * 2)
        assert transport.sent == encoded([b"a frame"] * 4)
        assert not transport.said

    run_in_virtual_time(scenario())


def test_whoever_does_not_read_takes_nobody_for_gone() -> None:
    async def scenario() -> None:
        stream, transport = connected()
        stream.beat()
        while transport.said != ["pause"]:
            feed(stream, encoded([bytes(100_000)]))
        await time_passes(BEAT_S * 10)
        assert transport.said == ["pause"]
        while stream._frames:
            await stream.read()
        # From now on it listens again.
        await time_passes(BEAT_S)
        assert transport.said == ["pause", "resume"]
        await time_passes(BEAT_S * (SILENT_BEATS_MAX + 2))
        assert transport.said == ["pause", "resume", "abort"]

    run_in_virtual_time(scenario())


async def pair() -> tuple[FrameStream, FrameStream, asyncio.Server]:
    """Both ends of a connection over loopback."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[FrameStream] = loop.create_future()
    server = await loop.create_server(
        lambda: FrameStream(FRAME_BYTES_MAX, accepted.set_result),
        sock=socket.create_server(("127.0.0.1", 0)),
    )
    port = server.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(
        lambda: FrameStream(FRAME_BYTES_MAX), "127.0.0.1", port
    )
    return client, await accepted, server


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run(scenario: Scenario) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await scenario()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return run


def test_a_connection_carries_frames_of_all_sizes_both_ways(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario() -> None:
        client, accepted, server = await pair()
        random = Random(3)
        frames = [random.randbytes(size) for size in (*sizes(random), 3 << 20)]

        async def write(stream: FrameStream) -> None:
            for frame in frames:
                await stream.write(frame)

        async def check(stream: FrameStream) -> None:
            for frame in frames:
                assert await stream.read() == frame

        await asyncio.gather(write(client), write(accepted), check(client), check(accepted))
        client.close()
        assert await accepted.read() is None
        server.close()

    play(scenario)


def test_small_frames_leave_at_once(play: Callable[[Scenario], None]) -> None:
    """A server's socket that is made here has another protocol number, which asyncio looks at."""

    async def scenario() -> None:
        client, accepted, server = await pair()
        for stream in (client, accepted):
            assert stream._transport is not None
            connection = stream._transport.get_extra_info("socket")
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            stream.close()
        server.close()

    play(scenario)


def test_finish_waits_until_everything_is_taken(play: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        client, accepted, server = await pair()
        for _ in range(20):
            writing = asyncio.ensure_future(accepted.write(bytes(500_000)))
            await turns()
        finishing = asyncio.ensure_future(accepted.finish(30))
        assert len(await read_all(client)) == 20
        await finishing
        await writing
        # Once more is harmless.
        await accepted.finish(30)
        server.close()

    play(scenario)


def test_nothing_is_taken_back_when_this_end_has_something_unread(
    play: Callable[[Scenario], None],
) -> None:
    """The kernel answers that with a reset, and drops what it has not sent."""

    async def scenario() -> None:
        client, accepted, server = await pair()
        writing = asyncio.ensure_future(_write_for_ever(client))
        await until(lambda: accepted._is_paused and client._writer is not None)
        assert client._transport is not None
        client._transport.pause_reading()
        # Less than makes a writer wait, and more than the client's kernel takes.
        await accepted.write(bytes(UNSENT_BYTES_HIGH - 100_000))
        finishing = asyncio.ensure_future(accepted.finish(30))
        await turns()
        client._transport.resume_reading()
        assert len(await read_all(client)) == 1
        await finishing
        with pytest.raises(StreamEnded):
            await writing
        server.close()

    play(scenario)


def test_finish_waits_no_longer_than_it_may(play: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        client, accepted, server = await pair()
        writing = asyncio.ensure_future(_write_for_ever(accepted))
        await until(lambda: accepted._writer is not None)
        # The client reads four megabytes and no more; the rest fills the network.
        await accepted.finish(0.05)
        with pytest.raises(StreamEnded):
            await writing
        client.close()
        server.close()

    play(scenario)


async def _write_for_ever(stream: FrameStream) -> None:
    while True:
        await stream.write(bytes(1 << 20))
