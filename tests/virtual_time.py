"""An event loop in which a minute passes at once, and a clock that follows it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _SkippingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left that could happen"
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """What is due next happens now; nothing comes from outside."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


class VirtualClock:
    """Follows the event loop; the wall clock can be made to jump."""

    def __init__(self) -> None:
        self.wall_offset_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1_000


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """asyncio.run in virtual time; a failed callback fails the test."""
    failures: list[dict[str, Any]] = []

    async def main() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        return await scenario

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        result = runner.run(main())
    assert not failures, failures
    return result


async def time_passes(seconds: float) -> None:
    """Virtual time goes by, with all that is due in it."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "wait for an event instead"
    await asyncio.sleep(seconds)
