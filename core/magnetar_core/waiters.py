"""Futures that somebody may wait for."""

from __future__ import annotations

import asyncio


def wake(waiter: asyncio.Future[None] | None) -> None:
    """Let whoever waits go on; nobody may wait, or not any more."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
