"""A single timer serves many deadlines: in order, and never after they are cancelled."""

from __future__ import annotations

from tests import virtual_time
from tests.client.link.test_runtime import new_runtime
from tests.virtual_time import time_passes

from magnetar.link.deadlines import FORGOTTEN_MAX
from magnetar_core.errors import MagnetarError


def test_moments_come_in_order_and_only_once() -> None:
    async def scenario() -> None:
        runtime = new_runtime()
        deadlines, fail = runtime.deadlines, runtime.fail
        seen: list[str] = []
        called_off = deadlines.call_later(fail, 2, lambda: seen.append("never"))
        deadlines.call_later(fail, 15, lambda: seen.append("late"))
        number = deadlines.call_later(fail, 1, lambda: seen.append("early"))
        deadlines.forget(called_off)
        await time_passes(0.03)
        deadlines.forget(number)
        deadlines.call_later(fail, 1, lambda: seen.append("again"))
        await time_passes(0.03)
        assert seen == ["early", "late", "again"]

    virtual_time.run(scenario())


def test_one_that_fails_tells_its_owner_and_does_not_take_others_with_it() -> None:
    async def scenario() -> None:
        runtime = new_runtime()
        runtime.loop.set_exception_handler(lambda loop, context: None)
        failures: list[MagnetarError] = []
        seen: list[str] = []
        runtime.deadlines.call_later(failures.append, 1, lambda: 1 // 0)
        runtime.deadlines.call_later(runtime.fail, 1, lambda: seen.append("other"))
        await time_passes(0.03)
        assert seen == ["other"]
        (failure,) = failures
        assert isinstance(failure.__cause__, ZeroDivisionError)
        assert runtime.failure is None

    virtual_time.run(scenario())


def test_what_is_called_off_takes_no_room() -> None:
    async def scenario() -> None:
        runtime = new_runtime()
        deadlines = runtime.deadlines
        for _ in range(10 * FORGOTTEN_MAX):
            deadlines.forget(deadlines.call_later(runtime.fail, 60_000, lambda: None))
        assert len(deadlines._heap) <= FORGOTTEN_MAX + 1
        deadlines.close()
        assert deadlines._timer is None

    virtual_time.run(scenario())
