"""What administrators change in a cluster, over a directory in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest
from tests.virtual_time import run, time_passes
from tests.waiting import until

from magnetar.link.members import ClusterInfo
from magnetar.link.members import Member as Listed
from magnetar_cli.cluster import changes
from magnetar_cli.cluster.picture import MemberPicture, Picture, of_info, of_view
from magnetar_cli.errors import explain
from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectoryUnavailable,
    ClusterDirectoryWentBack,
)
from magnetar_cluster.directory.memory_directory import MemoryDirectory, MemoryService
from magnetar_cluster.directory.view import (
    BROKER,
    COORDINATOR,
    Format,
    Member,
    MemberName,
    ShardName,
    View,
)
from magnetar_cluster.directory.wish import wishes

FIXED = Format(broker_shards=3, coordinator_shards=1)
A, B, C = (MemberName(BROKER, name) for name in ("a", "b", "c"))
# It has the name of a broker.
COORDINATOR_A = MemberName(COORDINATOR, "a")
SHARDS = FIXED.shards(BROKER)


class World:
    """A directory with two brokers, which have three shards, and a coordinator."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.service = MemoryService(lambda: loop.time() * 1_000)
        self.directory = MemoryDirectory(self.service)
        self.leases: dict[MemberName, int] = {}
        self.progress: list[tuple[int, int]] = []

    async def start(self) -> World:
        assert await self.directory.format(FIXED) == FIXED
        for number, name in enumerate((A, B, COORDINATOR_A)):
            await self.join(name, f"127.0.0.1:{number}")
        await self.claim(A, SHARDS[0], SHARDS[1])
        await self.claim(B, SHARDS[2])
        return self

    async def join(
        self,
        name: MemberName,
        address: str,
        *,
        leaving: bool = False,
        refused: tuple[int, ...] = (),
    ) -> None:
        if name not in self.leases:
            self.leases[name] = await self.directory.grant(10_000_000)
        member = Member(address=address, version="1.2", leaving=leaving, refused=refused)
        assert await self.directory.join(self.leases[name], name, member)

    async def claim(self, name: MemberName, *shards: ShardName) -> None:
        for shard in shards:
            assert await self.directory.claim(self.leases[name], shard, name.name)

    async def hand_over(self, shard: ShardName, to: MemberName) -> None:
        await self.directory.release(shard, self.view.shard_owners[shard].epoch)
        await self.claim(to, shard)

    @property
    def view(self) -> View:
        return self.service.state.view

    def on_progress(self, done: int, total: int) -> None:
        if (done, total) not in self.progress[-1:]:
            self.progress.append((done, total))


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def begin() -> None:
        world = await World().start()
        await scenario(world)
        world.service.close()

    run(begin())


def test_a_picture_shows_what_moves() -> None:
    async def scenario(world: World) -> None:
        await world.directory.pin(SHARDS[1], "b")
        await world.directory.drain(A, draining=True)
        await world.directory.drain(C, draining=True)
        found = of_view(world.view, FIXED)
        assert [(one.kind, one.name, one.numbers, one.state) for one in found.members] == [
            ("broker", "a", "0 1", "draining"),
            ("broker", "b", "2", "alive"),
            ("broker", "c", "", "away, draining"),
            ("coordinator", "a", "", "alive"),
        ]
        assert [(one.name, one.owner, one.wished, one.pinned) for one in found.shards] == [
            ("broker-0", "a", "b", ""),
            ("broker-1", "a", "b", "b"),
            ("broker-2", "b", "", ""),
            ("coordinator-0", "", "a", ""),
        ]
        first = found.shards[0]
        assert (first.address, first.epoch) == (
            "127.0.0.1:0",
            world.view.shard_owners[SHARDS[0]].epoch,
        )
        assert found.shards[-1].epoch is None
        await world.join(B, "127.0.0.1:1", leaving=True)
        found = of_view(world.view, FIXED)
        assert [one.state for one in found.members][1] == "leaving"
        assert {one.wished for one in found.shards if one.kind == BROKER} == {""}

    in_world(scenario)


def test_a_member_that_cannot_open_shards_is_shown_and_gets_none_of_them() -> None:
    async def scenario(world: World) -> None:
        await world.join(A, "127.0.0.1:0", refused=(0, 1))
        found = of_view(world.view, FIXED)
        assert found.members[0].refused == ("broker-0", "broker-1")
        assert [one.state for one in found.members] == [
            "alive, could not open 0 1",
            *("alive", "alive"),
        ]
        await world.directory.drain(A, draining=True)
        assert of_view(world.view, FIXED).members[0].state == "draining, could not open 0 1"
        await world.directory.drain(A, draining=False)
        with pytest.raises(changes.CannotOpen, match="a could not open broker-0"):
            await changes.pin(world.directory, world.view, SHARDS[0], A)
        assert not world.view.pins
        # Somebody waits, and the member tries in vain.
        await changes.pin(world.directory, world.view, SHARDS[2], A)
        moving = asyncio.ensure_future(
            changes.until_moved(world.directory, SHARDS[2], A, world.on_progress)
        )
        await time_passes(1)
        assert not moving.done()
        await world.join(A, "127.0.0.1:0", refused=(2,))
        with pytest.raises(changes.CannotOpen, match="a could not open broker-2"):
            await moving

    in_world(scenario)


def test_a_cluster_that_nobody_made_is_told() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        directory = MemoryDirectory(MemoryService(lambda: loop.time() * 1_000))
        with pytest.raises(changes.NoCluster, match="first server"):
            await changes.known(directory)

    run(scenario())


def test_names_are_found_or_told() -> None:
    async def scenario(world: World) -> None:
        view = world.view
        assert changes.member_named(view, "b", None) == B
        assert changes.member_named(view, "a", COORDINATOR) == COORDINATOR_A
        with pytest.raises(changes.WrongName, match="--kind"):
            changes.member_named(view, "a", None)
        with pytest.raises(changes.WrongName, match="called c; it has a, a, b"):
            changes.member_named(view, "c", None)
        with pytest.raises(changes.WrongName, match=r"no coordinator .* called b; it has a"):
            changes.member_named(view, "b", COORDINATOR)
        assert changes.member_named(view, "c", None, also=[C]) == C
        assert changes.shard_named(FIXED, "broker-2") == SHARDS[2]
        for wrong in ("broker-3", "broker-02", "broker", "2", "a"):
            with pytest.raises(changes.WrongName, match=r"broker-0 to broker-2 and coordinator-0"):
                changes.shard_named(FIXED, wrong)

    in_world(scenario)


def test_a_drain_ends_when_the_member_has_no_shard() -> None:
    async def scenario(world: World) -> None:
        await changes.begin_drain(world.directory, world.view, A, may_wait=False)
        waiting = asyncio.create_task(changes.until_drained(world.directory, A, world.on_progress))
        await until(lambda: world.progress)
        await world.hand_over(SHARDS[0], B)
        await time_passes(60)
        assert not waiting.done()
        await world.hand_over(SHARDS[1], B)
        await waiting
        assert world.progress == [(0, 2), (1, 2), (2, 2)]
        assert world.view.draining == {A}
        assert await changes.end_drain(world.directory, world.view, A)
        assert world.view.draining == frozenset()
        assert not await changes.end_drain(world.directory, world.view, A)

    in_world(scenario)


@pytest.mark.parametrize("why", ["alone", "draining", "leaving"])
def test_a_drain_that_nobody_would_take_is_refused(why: str) -> None:
    async def scenario(world: World) -> None:
        if why == "alone":
            await world.directory.revoke(world.leases[B])
        elif why == "draining":
            await world.directory.drain(B, draining=True)
        else:
            await world.join(B, "127.0.0.1:1", leaving=True)
        before = world.view
        with pytest.raises(changes.NobodyTakesShards, match="start one first"):
            await changes.begin_drain(world.directory, world.view, A, may_wait=False)
        assert world.view == before
        # Without a shard there is nothing to take; and who does not wait may begin with this.
        await changes.begin_drain(world.directory, world.view, COORDINATOR_A, may_wait=False)
        await changes.begin_drain(world.directory, world.view, A, may_wait=True)
        assert {A, COORDINATOR_A} <= world.view.draining

    in_world(scenario)


def test_a_shard_moves_to_a_member_that_can_have_it() -> None:
    async def scenario(world: World) -> None:
        async def refused(name: MemberName, match: str) -> None:
            before = world.view
            with pytest.raises(changes.WrongName, match=match):
                await changes.pin(world.directory, world.view, SHARDS[0], name)
            assert world.view == before

        await refused(COORDINATOR_A, "a is a coordinator, and broker-0 is of a broker")
        await refused(C, "start it first")
        await world.directory.drain(B, draining=True)
        await refused(B, "--undo")
        await world.directory.drain(B, draining=False)
        await changes.pin(world.directory, world.view, SHARDS[0], B)
        assert world.view.pins == {SHARDS[0]: "b"}
        waiting = asyncio.create_task(
            changes.until_moved(world.directory, SHARDS[0], B, world.on_progress)
        )
        await until(lambda: world.progress)
        await world.hand_over(SHARDS[0], B)
        await waiting
        assert world.progress == [(0, 1), (1, 1)]

    in_world(scenario)


def test_a_rebalance_takes_pins_back_and_waits_for_every_shard() -> None:
    async def scenario(world: World) -> None:
        for shard in SHARDS:
            await world.directory.pin(shard, "b")
        assert await changes.take_pins_back(world.directory, world.view) == list(SHARDS)
        assert world.view.pins == {}
        await world.claim(COORDINATOR_A, *FIXED.shards(COORDINATOR))
        wished = wishes(world.view, FIXED)
        await world.hand_over(SHARDS[2], A)
        assert set(wished.values()) == {"a", "b"}
        waiting = asyncio.create_task(
            changes.until_balanced(world.directory, FIXED, world.on_progress)
        )
        await until(lambda: world.progress)
        for shard in SHARDS:
            await time_passes(60)
            assert not waiting.done()
            await world.directory.release(shard, world.view.shard_owners[shard].epoch)
        for shard in SHARDS:
            await time_passes(60)
            assert not waiting.done()
            await world.claim(MemberName(BROKER, wished[shard]), shard)
        await waiting
        assert (1, 4) in world.progress
        assert world.progress[-1] == (4, 4)

    in_world(scenario)


def test_nobody_waits_for_shards_that_nobody_may_have() -> None:
    async def scenario(world: World) -> None:
        await world.directory.drain(COORDINATOR_A, draining=True)
        await world.directory.revoke(world.leases[B])
        await world.claim(A, SHARDS[2])
        await changes.until_balanced(world.directory, FIXED, world.on_progress)
        assert world.progress == [(3, 3)]

    in_world(scenario)


def test_whoever_waits_goes_on_when_the_directory_is_back() -> None:
    async def scenario(world: World) -> None:
        attempts = 0
        watch = world.service.watch

        class Away(MemoryDirectory):
            async def watch(self) -> AsyncGenerator[View, None]:
                nonlocal attempts
                attempts += 1
                if attempts < 4:
                    raise ClusterDirectoryUnavailable("no answer")
                async with aclosing(watch()) as views:
                    async for view in views:
                        yield view
                        if attempts < 6:
                            raise ClusterDirectoryUnavailable("the watch broke")

        waiting = asyncio.create_task(
            changes.until_drained(Away(world.service), B, world.on_progress)
        )
        await time_passes(60)
        await world.hand_over(SHARDS[2], A)
        await waiting
        assert attempts == 6

    in_world(scenario)


def test_what_a_broker_knows_makes_the_same_picture() -> None:
    def info(*addresses: str) -> ClusterInfo:
        brokers = tuple(Listed(f"broker-{n}", one) for n, one in enumerate(addresses))
        return ClusterInfo("c", 1, "h", brokers, (Listed("coordinator-0", "h:9", 0),), "1")

    def shown(found: Picture) -> list[tuple[str, str, str]]:
        return [(one.name, one.address, one.numbers) for one in found.members]

    listed = of_info(info("h:1", "h:2"))
    assert shown(listed) == [
        ("broker-0", "h:1", "0"),
        ("broker-1", "h:2", "1"),
        ("coordinator-0", "h:9", "0"),
    ]
    assert [one.epoch for one in listed.shards] == [None, None, None]
    moving = of_info(info("h:1#0.7", "h:2#1.8", "h:1#2.9", "#3.0"))
    assert moving.members[0] == MemberPicture(
        kind="broker", name="h:1", address="h:1", shards=("broker-0", "broker-2")
    )
    assert [(one.owner, one.epoch) for one in moving.shards] == [
        *(("h:1", 7), ("h:2", 8), ("h:1", 9), ("", None), ("coordinator-0", None)),
    ]


def test_whoever_waits_hears_that_the_directory_went_back() -> None:
    """It would say so for ever: nobody waits for it as for one that is away."""

    class Restored(MemoryDirectory):
        async def watch(self) -> AsyncGenerator[View, None]:
            yield View()
            raise ClusterDirectoryWentBack("restored")

    async def scenario(world: World) -> None:
        restored = Restored(world.service)
        async with asyncio.timeout(60):
            with pytest.raises(ClusterDirectoryWentBack) as raised:
                await changes.until(restored, lambda view: False)
        explained = explain(raised.value)
        assert (explained.message, explained.exit_code) == ("restored", 10)

    in_world(scenario)
