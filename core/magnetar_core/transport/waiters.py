"""Futures that a task may wait for."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def wake(waiter: asyncio.Future[None] | None) -> None:
    """Wake the task that waits, if there is one."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def settle(future: asyncio.Future[T], result: T | Exception) -> None:
    """Give a future its result or its error, if it has none and was not cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
