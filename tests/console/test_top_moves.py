"""`magnetar top` drains servers and rebalances, by keys."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("textual", reason="Textual is not installed")

from tests.console.terminal import line_with, sees
from tests.console.test_cluster_look import A, Cluster
from textual.pilot import Pilot

from magnetar import Client
from magnetar_console.hub import Hub
from magnetar_console.terminal.app import Top
from magnetar_core.clock import SystemClock


@asynccontextmanager
async def top(cluster: Cluster, *, allow_actions: bool = True) -> AsyncIterator[Pilot[None]]:
    """Run it in a terminal of 80 columns, with the cursor on the first server."""

    async def connect() -> Client:
        return cluster.client

    hub = Hub(connect, lambda: cluster.net, SystemClock(), "run", 0.05)
    app = Top(
        hub,
        SystemClock(),
        brokers="a:1",
        viewer="ann",
        allow_actions=allow_actions,
        period_s=0.05,
    )
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await sees(pilot, "Servers")
            await pilot.press("6", "slash", *"a:1", "enter")
            await sees(pilot, "1 of ")
            yield pilot
    finally:
        await hub.close()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_server_is_drained_after_it_was_told_what_moves() -> None:
    async def work() -> None:
        cluster = Cluster()
        async with top(cluster) as pilot:
            await sees(pilot, "d drain", "answers")
            await pilot.press("d")
            await sees(pilot, "Drain broker a?", "1 shard will move", "broker-0: from a to b")
            # Enter is not an answer, and n is the answer that changes nothing.
            await pilot.press("enter", "n")
            assert not cluster.drained
            await pilot.press("d")
            await sees(pilot, "broker-0: from a to b")
            await pilot.press("y")
            await sees(pilot, "Done: drain broker a: 1 shard to move.")
            assert cluster.drained == [("broker", "a", {"undo": False})]
            cluster.is_draining = True
            await sees(pilot, "draining")
            await pilot.press("d")
            await sees(pilot, "End the drain of broker a?", "It may have shards again.")
            await pilot.press("y")
            await sees(pilot, "Done: end the drain of broker a")
            assert cluster.drained[-1] == ("broker", "a", {"undo": True})

    run(work)


def test_what_moves_is_told_again_when_it_has_changed() -> None:
    async def work() -> None:
        cluster = Cluster()
        async with top(cluster) as pilot:
            await pilot.press("b")
            await sees(pilot, "Rebalance the cluster?", "broker-0: from a to b")
            cluster.moves = ()
            await pilot.press("y")
            await sees(pilot, "the cluster has changed", "No shard will move.")
            assert not cluster.drained
            await pilot.press("y")
            await sees(pilot, "Done: rebalance the cluster: 0 shards to move.")
            assert cluster.drained == [("rebalance",)]

    run(work)


def test_it_only_looks_without_the_option_and_where_servers_keep_their_shards() -> None:
    async def work() -> None:
        async with top(Cluster(), allow_actions=False) as pilot:
            for key in "db":
                await pilot.press(key)
                await sees(pilot, "Start it with --allow-actions")
        fixed = Cluster()
        fixed.is_fixed = True
        async with top(fixed) as pilot:
            await sees(pilot, "answers")
            await pilot.press("d")
            await sees(pilot, "Servers keep their shards here")
            await pilot.press("1", "b")
            await sees(pilot, "keys 6 and 7")

    run(work)


def test_leases_are_shown_with_their_age() -> None:
    async def work() -> None:
        cluster = Cluster()
        async with top(cluster) as pilot:
            await sees(pilot, "LEASE")
            await sees(pilot, "broker-0")
            row = line_with(pilot.app, "answers  ")
            assert re.search(rf"{A} .*answers +\d\.\d s +\d\.\d s", row), row
            await pilot.press("enter")
            await sees(pilot, "Member", "renewed", "silent at 2.0 s", "shards at 3.0 s")
            await pilot.press("escape", "escape", "7", "slash", *"broker-0", "enter", "enter")
            await sees(pilot, "Phase", "closing", "Moves to", "Lease")

    run(work)
