"""A single timer serves many deadlines: in order, and never after they are cancelled."""

import asyncio
import logging

import pytest

from magnetar.link.deadlines import FORGOTTEN_MAX, Deadlines


def test_moments_come_in_order_and_only_once() -> None:
    async def scenario() -> list[str]:
        deadlines = Deadlines(asyncio.get_running_loop())
        seen: list[str] = []
        over = asyncio.Event()
        deadlines.call_later(30, over.set)
        called_off = deadlines.call_later(2, lambda: seen.append("never"))
        deadlines.call_later(15, lambda: seen.append("late"))
        number = deadlines.call_later(1, lambda: seen.append("early"))
        deadlines.forget(called_off)
        await over.wait()
        deadlines.forget(number)
        deadlines.call_later(1, lambda: seen.append("again"))
        over.clear()
        deadlines.call_later(1, over.set)
        await over.wait()
        return seen

    assert asyncio.run(scenario()) == ["early", "late", "again"]


def test_one_that_fails_does_not_take_others_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        over = asyncio.Event()
        deadlines.call_later(1, lambda: 1 // 0)
        deadlines.call_later(1, over.set)
        await over.wait()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "deadline" in caplog.text


def test_what_is_called_off_takes_no_room() -> None:
    async def scenario() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        for _ in range(10 * FORGOTTEN_MAX):
            deadlines.forget(deadlines.call_later(60_000, lambda: None))
        assert len(deadlines._heap) <= FORGOTTEN_MAX + 1
        deadlines.close()
        assert deadlines._timer is None

    asyncio.run(scenario())
