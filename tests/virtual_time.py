"""Scenarios in virtual time, in which a minute passes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.virtual_loop import VirtualLoop

T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """asyncio.run in virtual time; a failed callback or task fails the test."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(scenario)
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.check()
    return result


async def time_passes(seconds: float) -> None:
    """Virtual time goes by, with all that is due in it."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop), "wait for an event instead"
    await asyncio.sleep(seconds)
