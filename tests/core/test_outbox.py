"""Frames in an outbox stay in order, are joined when small, and are limited by waiting."""

import asyncio

from tests.waiting import turns

from magnetar_core.transport.outbox import JOIN_BYTES_MAX, Outbox


def test_small_frames_that_wait_together_leave_together() -> None:
    async def scenario() -> None:
        outbox = Outbox(1 << 20)
        for frame in (b"a", b"b", b"c"):
            outbox.put(frame)
        assert await outbox.take() == b"abc"
        outbox.put(b"d")
        outbox.put(bytes(JOIN_BYTES_MAX))
        assert await outbox.take() == b"d"
        assert await outbox.take() == bytes(JOIN_BYTES_MAX)

    asyncio.run(scenario())


def test_drain_waits_until_half_is_sent() -> None:
    async def scenario() -> None:
        outbox = Outbox(JOIN_BYTES_MAX)
        await outbox.drain()
        for _ in range(3):
            outbox.put(bytes(JOIN_BYTES_MAX))
        waiting = asyncio.ensure_future(outbox.drain())
        for _ in range(3):
            await turns()
            assert not waiting.done()
            await outbox.take()
        assert outbox.byte_count == JOIN_BYTES_MAX
        taking = asyncio.ensure_future(outbox.take())
        await waiting
        assert outbox.byte_count == 0
        taking.cancel()

    asyncio.run(scenario())


def test_finish_sends_the_rest_and_close_forgets_it() -> None:
    async def scenario() -> None:
        finished = Outbox(1)
        finished.put(b"rest")
        waiting = asyncio.ensure_future(finished.drain())
        await turns()
        finished.finish()
        finished.put(b"late")
        await waiting
        assert await finished.take() == b"rest"
        assert await finished.take() is None

        closed = Outbox(1)
        closed.put(b"rest")
        closed.close()
        assert closed.byte_count == 0
        assert await closed.take() is None
        await closed.drain()

    asyncio.run(scenario())


def test_closing_wakes_the_sender() -> None:
    async def scenario() -> None:
        outbox = Outbox(1)
        taking = asyncio.ensure_future(outbox.take())
        await turns()
        outbox.close()
        assert await taking is None

    asyncio.run(scenario())
