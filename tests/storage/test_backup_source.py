"""The view of a backup: nothing is written while it is held, and it stays as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar_core.errors import Gone, InvalidArgument, ResourceInUse
from magnetar_storage.backup_source import (
    HOLD_MS_MAX,
    IDLE_SECONDS_MAX,
    BackupSource,
    pack_rows,
    unpack_rows,
)
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.memory.engine import MemoryDisk, MemorySnapshot, MemoryStore
from magnetar_storage.store import KEY_END, StoreFailed

TURNS = 10


class World:
    def __init__(self) -> None:
        self.store = MemoryStore(MemoryDisk(), ("rows",))
        self.failures: list[BaseException] = []
        self.commits = GroupCommit(self.store, on_failure=self.failures.append)
        self.source = BackupSource(self.store, self.commits, ("rows",))
        self.durable: list[int] = []

    async def put(self, number: int) -> None:
        self.commits.batch.put("rows", b"%03d" % number, b"v")
        position = self.commits.position()
        self.commits.when_durable(position, lambda: self.durable.append(number))
        await turns(TURNS)

    async def stored(self) -> list[int]:
        return [int(key) for key, _ in await self.store.scan("rows", b"", KEY_END, rows_max=99)]

    async def view(self, token: int) -> list[int]:
        found: list[int] = []
        start: bytes | None = b""
        while start is not None:
            rows, start = await self.source.read(token, "rows", start, 1)
            found += [int(key) for key, _ in rows]
        return found


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def within() -> None:
        world = World()
        await world.commits.start()
        await scenario(world)
        await world.source.close()
        await world.commits.close()

    run_in_virtual_time(within())


def test_nothing_becomes_durable_while_it_is_held() -> None:
    async def scenario(world: World) -> None:
        await world.put(1)
        await world.source.hold(7, 1_000)
        await world.put(2)
        assert world.durable == [1]
        assert await world.stored() == [1]
        assert world.source.release(7)
        await turns(TURNS)
        assert world.durable == [1, 2]
        await world.put(3)
        assert await world.view(7) == [1], "the moment at which it was held"

    run(scenario)


def test_who_was_released_by_time_says_so() -> None:
    async def scenario(world: World) -> None:
        await world.source.hold(7, 1_000)
        await world.put(1)
        await time_passes(1.1)
        assert world.durable == [1]
        assert not world.source.release(7)

    run(scenario)


def test_a_later_backup_is_not_touched_by_an_earlier_one() -> None:
    async def scenario(world: World) -> None:
        await world.source.hold(7, 1_000)
        with pytest.raises(ResourceInUse):
            await world.source.hold(8, 1_000)
        await world.source.end(7)
        await world.source.hold(8, 1_000)
        await world.source.end(7)
        assert not world.source.release(7)
        await world.put(1)
        assert world.durable == [], "it is held for the later one"
        with pytest.raises(Gone):
            await world.view(7)
        assert world.source.release(8)

    run(scenario)


def test_who_is_ended_while_a_group_is_written_holds_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.commits.hold()
        first = asyncio.create_task(world.source.hold(7, HOLD_MS_MAX))
        await turns(TURNS)
        await world.source.end(7)
        second = asyncio.create_task(world.source.hold(8, 1_000))
        await turns(TURNS)
        world.commits.release()
        with pytest.raises(Gone):
            await first
        await second
        assert world.source.release(8)
        await world.put(1)
        assert world.durable == [1]
        assert await world.view(8) == []

    run(scenario)


def test_who_is_ended_while_the_view_is_frozen_holds_nothing() -> None:
    async def scenario(world: World) -> None:
        snapshot, frozen = world.store.snapshot, asyncio.Event()

        async def slow_snapshot() -> MemorySnapshot:
            await frozen.wait()
            return await snapshot()

        world.store.snapshot = slow_snapshot  # type: ignore[method-assign]
        late = asyncio.create_task(world.source.hold(7, HOLD_MS_MAX))
        await turns(TURNS)
        await world.source.end(7)
        await world.put(1)
        assert world.durable == [1]
        frozen.set()
        with pytest.raises(Gone):
            await late
        await world.source.hold(8, 1_000)
        assert await world.view(8) == [1]

    run(scenario)


def test_a_view_that_nobody_reads_is_given_up() -> None:
    async def scenario(world: World) -> None:
        await world.put(1)
        await world.source.hold(7, 1_000)
        world.source.release(7)
        await time_passes(IDLE_SECONDS_MAX - 1)
        assert await world.view(7) == [1]
        await time_passes(IDLE_SECONDS_MAX - 1)
        assert await world.view(7) == [1]
        await time_passes(IDLE_SECONDS_MAX + 1)
        with pytest.raises(Gone):
            await world.view(7)
        await world.source.hold(8, 1_000)

    run(scenario)


@pytest.mark.parametrize(("token", "hold_ms"), [(0, 1_000), (7, 0), (7, HOLD_MS_MAX + 1)])
def test_limits(token: int, hold_ms: int) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidArgument):
            await world.source.hold(token, hold_ms)
        await world.put(1)
        assert world.durable == [1]

    run(scenario)


def test_an_unknown_family_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.source.hold(7, 1_000)
        with pytest.raises(InvalidArgument):
            await world.source.read(7, "others", b"", 0)

    run(scenario)


def test_a_store_that_failed_is_not_held() -> None:
    async def within() -> None:
        world = World()
        await world.commits.start()
        world.commits.abandon()
        with pytest.raises(StoreFailed):
            await world.source.hold(7, 1_000)
        with pytest.raises(StoreFailed):
            await world.source.hold(8, 1_000)

    asyncio.run(within())


def test_closing_a_server_does_not_wait_for_a_backup() -> None:
    async def scenario(world: World) -> None:
        await world.source.hold(7, HOLD_MS_MAX)
        await world.put(1)

    run(scenario)


def test_packed_rows_are_unpacked() -> None:
    rows = [(b"a", b"1"), (b"", b""), (b"key", b"v" * 1_000)]
    assert list(unpack_rows(pack_rows(rows))) == rows


@pytest.mark.parametrize("cut", [1, 7, 9])
def test_rows_that_are_cut_short_are_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="middle of a row"):
        list(unpack_rows(pack_rows([(b"a", b"1")])[:cut]))
