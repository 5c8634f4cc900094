"""Idle producers are forgotten; only time in which the broker runs counts."""

from __future__ import annotations

import pytest
from tests.broker.harness import World, run, send

from magnetar_broker import keys

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
IDLE_MS = 24 * HOUR_MS


async def look(world: World) -> None:
    """What happens every few seconds."""
    await world.broker._retain()
    await world.settle()


async def is_known(world: World) -> bool:
    """Whether a late copy of the producer's first batch is recognised."""
    return bool((await world.client.ask(send(b"0"))).duplicate)


@pytest.mark.parametrize("jump_ms", [YEAR_MS, -YEAR_MS])
def test_a_jump_of_the_wall_clock_makes_nobody_idle(jump_ms: int) -> None:
    """A late copy of a batch was stored a second time, when the clock had been set right."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        world.clock.wall_offset_ms += jump_ms
        await look(world)
        assert await is_known(world)
        await world.restart()
        await look(world)
        assert await is_known(world)
        assert await world.read() == [b"0"]

    run(scenario)


def test_a_wall_clock_that_went_back_keeps_nobody() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        world.clock.wall_offset_ms -= YEAR_MS
        world.clock.advance(IDLE_MS + 1)
        await look(world)
        assert len(await world.rows(keys.PRODUCERS)) == 0

    run(scenario)


def test_run_time_adds_up_over_restarts_and_downtime_does_not_count() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        for _ in range(3):
            world.clock.advance(IDLE_MS // 4)
            await look(world)
            await world.restart()
        world.clock.advance(IDLE_MS // 8)
        await look(world)
        assert len(await world.rows(keys.PRODUCERS)) == 1
        world.clock.advance(IDLE_MS // 8 + 1)
        await look(world)
        assert len(await world.rows(keys.PRODUCERS)) == 0

    run(scenario)


def test_without_producers_nothing_is_written() -> None:
    async def scenario(world: World) -> None:
        world.clock.advance(HOUR_MS)
        await look(world)
        assert keys.META_RUN_TIME not in dict(await world.rows(keys.META))
        await world.client.ask(send(b"0"))
        await look(world)
        assert keys.META_RUN_TIME in dict(await world.rows(keys.META))

    run(scenario)
