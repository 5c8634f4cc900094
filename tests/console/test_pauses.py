"""However many views are scanned, the servers work a fiftieth of the time for them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import cast

import pytest
from tests.waiting import until

from magnetar import Client
from magnetar_console import channel as channels
from magnetar_console.channel import Channel
from magnetar_console.pauses import (
    CHANGES_PAUSE,
    SCAN_PAUSE,
    SCAN_PAUSE_S_MAX,
    Scans,
    pause_s,
)
from magnetar_console.seen import Seen
from magnetar_core.clock import SystemClock


@pytest.mark.parametrize("sharers", [1, 3, 10])
def test_scans_share_a_fiftieth(sharers: int) -> None:
    took_s = 0.005
    pause = pause_s(took_s, 0.1, SCAN_PAUSE, sharers)
    assert sharers * took_s / (took_s + pause) == pytest.approx(1 / 50, rel=0.03)


def test_a_page_has_news_within_seconds() -> None:
    assert pause_s(0.2, 1.0, SCAN_PAUSE, 64) == SCAN_PAUSE_S_MAX
    # It has waited for a server.
    assert pause_s(3.0, 1.0, SCAN_PAUSE, 64) == 3.0 * CHANGES_PAUSE


class Look:
    def __init__(self, pause_factor: float) -> None:
        self.period_s = 0.0
        self.pause_factor = pause_factor

    async def look(self, client: Client) -> Seen:
        return Seen({})

    async def close(self) -> None:
        pass


class Connection:
    async def client(self) -> Client:
        return cast(Client, None)

    async def failed(self, error: Exception) -> None:
        raise error


def test_views_count_while_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noted(took_s: float, period_s: float, factor: float, sharers: int) -> float:
        seen.append(sharers)
        return 0.0

    monkeypatch.setattr(channels, "pause_s", noted)
    scans = Scans()

    async def work() -> None:
        factors = (SCAN_PAUSE, SCAN_PAUSE, CHANGES_PAUSE)
        async with AsyncExitStack() as views:
            for factor in factors:
                channel = Channel(Look(factor), Connection(), SystemClock(), "run", scans=scans)
                events = await views.enter_async_context(aclosing(channel.events()))
                await anext(events)
            assert scans.count == 2
            await until(lambda: set(seen) == {1, 2})
        assert scans.count == 0

    asyncio.run(work())
