"""Waiting in tests: for events, never for time.

No other test may sleep (tests/ruff.toml), except in the simulation, where all time is virtual. A
limit only ends a test that hangs: no verdict depends on its length.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

PATIENCE_S = 30.0
# Most of what runs on one event loop is true after a few turns; the rest comes from elsewhere.
TURNS_FIRST = 20
STEP_S = 0.005


async def until(
    condition: Callable[[], object | Awaitable[object]], patience_s: float = PATIENCE_S
) -> float:
    """Wait for a condition, which may be a coroutine; returns how many seconds it took.

    Raises:
        TimeoutError: it did not come true.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    count = 0
    while True:
        met = condition()
        if await met if inspect.isawaitable(met) else met:
            return loop.time() - began_s
        if loop.time() - began_s > patience_s:
            raise TimeoutError(f"it did not come true within {patience_s} s")
        await asyncio.sleep(0 if count < TURNS_FIRST else STEP_S)
        count += 1


def wait_until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait for what other processes or threads bring about, without an event loop.

    Raises:
        TimeoutError: it did not come true.
    """
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"it did not come true within {patience_s} s")
        time.sleep(STEP_S)


async def turns(count: int = 1) -> None:
    """Let the event loop turn: whatever is ready runs, and what that made ready.

    For what takes a turn by definition, or takes few where many are given.
    """
    for _ in range(count):
        await asyncio.sleep(0)


async def for_ever() -> NoReturn:
    """Wait until the task or its process is ended."""
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


async def pace(seconds: float) -> None:
    """A program of a test takes its time, as users' do: load, faults and samples have a rate.

    Nothing may be expected of the time that passed.
    """
    await asyncio.sleep(seconds)
