"""Work that ends early when something else happens first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Interrupted(Exception):
    """Something else happened before the work was done."""


async def unless(work: Coroutine[Any, Any, Result], happening: asyncio.Future[Any]) -> Result:
    """Do the work, and return what it returns. However this ends, the work has ended, too.

    Raises:
        Interrupted: something else happened first, and the work was cancelled.
    """
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((working, happening), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Interrupted
        return await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def unless_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result | None:
    """Return the result of work; None when told to stop meanwhile."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        return await unless(work, stopping)
    except Interrupted:
        return None
    finally:
        stopping.cancel()
