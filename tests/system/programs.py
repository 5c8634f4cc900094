"""Programs that several tests run with a client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar import Client

Result = TypeVar("Result")


def run(test: Coroutine[Any, Any, Result], timeout_s: float = 30.0) -> Result:
    """Run a test's coroutine, for so long at most."""

    async def bounded() -> Result:
        async with asyncio.timeout(timeout_s):
            return await test

    return asyncio.run(bounded())


async def values(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """All committed messages of a partition."""
    return [message.value async for message in client.read(topic, partition)]
