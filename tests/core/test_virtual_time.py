"""Scenarios in virtual time: what fails unseen elsewhere fails the test."""

from __future__ import annotations

import asyncio

import pytest
from tests.virtual_loop import Deadlock, VirtualClock
from tests.virtual_time import run, time_passes

from magnetar.testing.lives import UnhandledException


async def fail() -> None:
    raise ValueError("nobody looks")


def test_a_day_passes_at_once_and_clocks_follow() -> None:
    async def scenario() -> tuple[float, int]:
        clock = VirtualClock()
        began_ms, began_wall_ms = clock.monotonic_ms(), clock.wall_ms()
        await time_passes(86_400)
        return clock.monotonic_ms() - began_ms, clock.wall_ms() - began_wall_ms

    assert run(scenario()) == (86_400_000, 86_400_000)


def test_a_task_that_failed_unseen_fails_the_test() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(fail(), name="unseen")
        await asyncio.wait((task,))

    with pytest.raises(UnhandledException, match="task unseen failed"):
        run(scenario())


def test_a_callback_that_failed_fails_the_test() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await time_passes(1)

    with pytest.raises(UnhandledException, match="ZeroDivisionError"):
        run(scenario())


def test_who_waits_for_what_never_comes_is_named() -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="scenario"):
        run(scenario())
