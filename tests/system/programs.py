"""What several tests do with a client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from magnetar import Client

STEP_S = 0.01


def run(test: Coroutine[Any, Any, None], timeout_s: float = 30.0) -> None:
    """Run a test's coroutine, for so long at most."""

    async def bounded() -> None:
        async with asyncio.timeout(timeout_s):
            await test

    asyncio.run(bounded())


async def values(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """All committed messages of a partition."""
    return [message.value async for message in client.read(topic, partition)]


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> float:
    """Wait for a condition; returns how many seconds it took."""
    began_s = time.monotonic()
    while not await condition():
        assert time.monotonic() - began_s < timeout_s, "it did not come true"
        await asyncio.sleep(STEP_S)
    return time.monotonic() - began_s
