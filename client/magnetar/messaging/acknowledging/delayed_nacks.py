"""Keeps messages that were given back until it is time to ask for them again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping

from magnetar.config import ConsumerConfig
from magnetar.link.runtime import Runtime, WorkOwner
from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker
from magnetar.messaging.interval_set import IntervalSet, Range

# Nacks that fall due within one such span travel together.
NACK_TICK_MS = 20


class DelayedNacks:
    """The nacks of a consumer on a partition."""

    def __init__(
        self,
        runtime: Runtime,
        config: ConsumerConfig,
        unacked: UnackedTracker,
        ask_again: Callable[[Mapping[int, list[Range]]], None],
        owner: WorkOwner,
    ) -> None:
        """No nack waits yet.

        Args:
            ask_again: called with the offsets that are due and were not acknowledged meanwhile, by
                their redelivery counts.
            owner: called if that fails.
        """
        self._owner = owner
        self._runtime = runtime
        self._config = config
        self._unacked = unacked
        self._ask_again = ask_again
        # By tick.
        self._waiting: dict[int, IntervalSet] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, ranges: Iterable[Range], delay_ms: float | None = None) -> None:
        """Give messages back after a delay, if the application has them.

        Args:
            ranges: the offsets.
            delay_ms: the delay in milliseconds; None: as configured.
        """
        given_back = self._unacked.nack_begins(ranges)
        if delay_ms is not None:
            if given_back:
                self._wait(given_back, delay_ms)
            return
        for redelivery_count, some in self._unacked.by_count(given_back).items():
            self._wait(some, self._config.nack_delay_of(redelivery_count))

    def _wait(self, given_back: list[Range], delay_ms: float) -> None:
        now_ms = self._runtime.now_ms()
        due_ms = now_ms + max(0.0, delay_ms)
        tick = math.ceil(due_ms / NACK_TICK_MS)
        waiting = self._waiting.get(tick)
        if waiting is None:
            waiting = self._waiting[tick] = IntervalSet()
            delay_ms = max(0.0, tick * NACK_TICK_MS - now_ms)
            self._timers[tick] = self._runtime.call_later(self._owner, delay_ms, self._due, tick)
        waiting.add_all(given_back)

    def clear(self) -> None:
        """Forget all nacks, since earlier deliveries no longer count."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    def _due(self, tick: int) -> None:
        self._timers.pop(tick, None)
        ranges = self._waiting.pop(tick, None)
        if ranges is not None:
            self._ask_again(self._unacked.nack_due(ranges))
