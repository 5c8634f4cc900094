"""All conversations of a command run on one event loop."""

from __future__ import annotations

import asyncio
import signal

import pytest

from magnetar_cli import event_loop


async def running() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_second_conversation_has_the_loop_of_the_first() -> None:
    """With a loop each, gRPC's late events for the first one ended in tracebacks."""
    first = event_loop.run(running())
    assert not first.is_closed()
    first.call_soon_threadsafe(lambda: None)
    assert event_loop.run(running()) is first


def test_an_interrupt_ends_a_conversation_and_the_next_one_works() -> None:
    async def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    # Others in this process, such as Spark, leave handlers of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            event_loop.run(interrupted())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not event_loop.run(running()).is_closed()
