"""Late syncs: what may leave when it is written, and what waits for the sync.

Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.storage.gated import TURNS, Gated
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar_storage.late_sync import LateSyncCommit
from magnetar_storage.store import StoreFailed

INTERVAL_MS = 1_000


class World(Gated[LateSyncCommit]):
    """What may leave when it is written is seen, too."""

    def __init__(self) -> None:
        super().__init__(
            lambda store: LateSyncCommit(
                store, on_failure=self.failures.append, sync_interval_ms=INTERVAL_MS
            ),
            late_syncs=True,
        )

    def written(self, what: Any, position: int | None = None) -> None:
        at = self.commits.position() if position is None else position
        self.commits.when_written(at, partial(self.seen.append, what))

    def synced(self) -> list[int]:
        return sorted(int(key) for key in self.disk.durable_keys("rows"))


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def within() -> None:
        world = World()
        await world.commits.start()
        await scenario(world)

    run_in_virtual_time(within())


def test_what_is_written_leaves_and_what_must_be_durable_waits_for_the_sync() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.written("plain")
        world.durable("transactional")
        await turns(TURNS)
        assert world.seen == ["plain"]
        assert world.synced() == []
        world.gate.set()
        await turns(TURNS)
        assert world.seen == ["plain", "transactional"]
        assert world.synced() == [1]
        await world.commits.close()

    run(scenario)


def test_groups_are_written_while_another_is_synced_and_one_sync_serves_them_all() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.durable("first")
        await turns(TURNS)
        for number in (2, 3, 4):
            world.put(number)
            world.written(number)
            world.durable(f"{number} durable")
            await turns(TURNS)
        assert world.seen == [2, 3, 4]
        world.disk.sync_seconds = 0.0
        world.gate.set()
        await turns(TURNS)
        assert world.seen == [2, 3, 4, "first", "2 durable", "3 durable", "4 durable"]
        assert (world.disk.write_count, world.disk.sync_count) == (4, 2)
        await world.commits.close()

    run(scenario)


def test_a_sync_tells_nobody_of_groups_that_were_written_after_it_began() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.durable("first")
        await turns(TURNS)
        world.put(2)
        world.durable("second")
        await turns(TURNS)
        world.gate.set()
        await turns(1)
        world.gate.clear()
        await turns(TURNS)
        assert world.seen == ["first"]
        assert world.synced() == [1]
        world.gate.set()
        await world.commits.close()
        assert world.seen == ["first", "second"]

    run(scenario)


def test_what_nobody_waits_for_is_synced_after_the_interval() -> None:
    async def scenario(world: World) -> None:
        world.disk.sync_seconds = 0.0
        world.put(1)
        world.written("plain")
        await time_passes(INTERVAL_MS / 1_000 - 0.01)
        assert world.synced() == []
        assert world.commits.seconds_unsynced() == pytest.approx(0.99)
        await time_passes(0.02)
        assert world.synced() == [1]
        assert world.commits.seconds_unsynced() == 0.0
        await time_passes(10)
        assert world.disk.sync_count == 1, "nothing was written since"
        world.put(2)
        await time_passes(INTERVAL_MS / 1_000 + 0.01)
        assert world.synced() == [1, 2]
        await world.commits.close()

    run(scenario)


def test_a_group_without_rows_is_durable_with_what_was_written_before_it() -> None:
    """A hook may add nothing; who waits for such a group hears all the same."""

    async def scenario(world: World) -> None:
        world.put(1)
        world.written("plain")
        await turns(TURNS)
        world.commits.mark_deferred()
        world.durable("after the empty group")
        await turns(TURNS)
        assert world.seen == ["plain", "after the empty group"]
        assert world.synced() == [1]
        await world.commits.close()

    run(scenario)


def test_callbacks_that_callbacks_add_come_after_those_parked_before() -> None:
    async def scenario(world: World) -> None:
        position = world.put(1)

        def first() -> None:
            world.seen.append("first")
            world.durable("now durable", position)

        world.commits.when_durable(position, first)
        world.durable("second", position)
        await turns(TURNS)
        assert world.seen == ["first", "second", "now durable"]
        await world.commits.close()

    run(scenario)


def test_closing_writes_and_syncs_what_callbacks_append() -> None:
    async def scenario(world: World) -> None:
        world.put(1)

        def first() -> None:
            world.put(2)
            world.durable("of the second group")

        world.commits.when_durable(world.commits.position(), first)
        await world.commits.close()
        assert world.seen == ["of the second group"]
        assert world.synced() == [1, 2]
        with pytest.raises(StoreFailed):
            world.put(3)

    run(scenario)


def test_after_a_failed_sync_nothing_leaves_and_nothing_is_written() -> None:
    """Rule b: memory is ahead of the disk."""

    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.durable("durable")
        await turns(TURNS)
        world.put(2)
        world.written("written before it failed")
        await turns(TURNS)
        waiting = asyncio.ensure_future(world.commits.durable())
        world.disk.fail_next_sync()
        world.gate.set()
        with pytest.raises(StoreFailed):
            await waiting
        await turns(TURNS)
        assert "durable" not in world.seen
        assert [type(one) for one in world.failures] == [StoreFailed], "told once"
        assert world.synced() == []
        with pytest.raises(StoreFailed):
            world.put(4)
        with pytest.raises(StoreFailed):
            await world.commits.close()

    run(scenario)


def test_after_a_failed_write_nothing_that_waits_for_a_sync_leaves() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.durable("durable")
        await turns(TURNS)
        world.disk.fail_next_write()
        world.put(2)
        world.written("written")
        await turns(TURNS)
        world.gate.set()
        await turns(TURNS)
        assert world.seen == []
        assert len(world.failures) == 1
        with pytest.raises(StoreFailed):
            await world.commits.close()

    run(scenario)


def test_what_is_abandoned_calls_nobody() -> None:
    async def scenario(world: World) -> None:
        world.gate.clear()
        world.put(1)
        world.durable("durable")
        await turns(TURNS)
        world.commits.abandon()
        world.gate.set()
        await turns(TURNS)
        assert world.seen == []
        assert world.failures == []

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_told_to_be_durable_outlives_a_loss_of_power(seed: int) -> None:
    """And what was told to be written outlives the process."""

    async def scenario(world: World) -> None:
        random = Random(seed)
        world.disk.sync_seconds = 0.0
        written: list[int] = []
        durable: list[int] = []
        for number in range(random.randrange(1, 40)):
            world.put(number)
            position = world.commits.position()
            world.commits.when_written(position, partial(written.append, number))
            if random.random() < 0.3:
                world.commits.when_durable(position, partial(durable.append, number))
            await turns(random.randrange(4))
        assert await world.stored() >= written
        world.disk.crash(random)
        kept = world.synced()
        assert kept == list(range(len(kept))), "a prefix"
        assert set(durable) <= set(kept)
        world.commits.abandon()

    run(scenario)
