"""Members of etcd die, stand still and come back; whoever uses them asks the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.directories import (
    LONG_MS,
    MEMBER,
    S0,
    S1,
    SHORT_MS,
    A,
    Watcher,
    present,
    run_in_time,
)
from tests.etcd_server import EtcdServer, started
from tests.waiting import turns, until, wait_until

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.directory.view import Format, ShardOwner
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings

FORMAT = Format(broker_shards=8, coordinator_shards=2)


@pytest.fixture(scope="module")
def etcd_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    yield from started(tmp_path_factory.mktemp("etcd"))


@pytest.fixture
def etcd(etcd_of_module: EtcdServer) -> Iterator[EtcdServer]:
    """Three members that the test may kill and freeze."""
    yield etcd_of_module
    etcd_of_module.agree()


def settings(etcd: EtcdServer, first: int = 0, call_timeout_ms: int = 20_000) -> EtcdSettings:
    """Settings of a client that asks one member first."""
    endpoints = etcd.endpoints
    return EtcdSettings(
        endpoints=(*endpoints[first:], *endpoints[:first]),
        endpoint_timeout_ms=500,
        call_timeout_ms=call_timeout_ms,
        silence_ms_max=1_500,
    )


@asynccontextmanager
async def opened(settings: EtcdSettings, cluster: str) -> AsyncIterator[EtcdDirectory]:
    directory = EtcdDirectory(settings, cluster)
    try:
        yield directory
    finally:
        await directory.close()


async def watching(directory: EtcdDirectory) -> Watcher:
    """A watcher that sees member A. A watch may break before: members may lose their leader."""
    while True:
        watcher = Watcher(directory)
        try:
            await watcher.until(lambda view: A in view.members)
        except ClusterDirectoryUnavailable:
            continue
        return watcher


class Work:
    """A member's life, again and again; it notices whatever is not as it was answered."""

    def __init__(self, directory: EtcdDirectory) -> None:
        self.count = 0
        self.pause_s_max = 0.0
        self._directory = directory
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def goes_on(self) -> None:
        """Wait until it has done something that began now."""
        count = self.count
        await until(lambda: self._task.done() or self.count >= count + 2)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        lease = await self._directory.grant(LONG_MS)
        former = 0
        while True:
            began_s = loop.time()
            await self._directory.renew(lease)
            epoch = await self._directory.claim(lease, S0, "a")
            assert epoch is not None
            assert epoch > former
            view = await present(self._directory)
            assert view.shard_owners == {S0: ShardOwner("a", epoch)}
            await self._directory.release(S0, epoch)
            left = (await present(self._directory)).shard_owners
            if left:
                # A copy of the claim lay at the member that stood still, and came after it.
                late = left[S0].epoch
                assert late > epoch
                await self._directory.release(S0, late)
                assert (await present(self._directory)).shard_owners == {}
            former = epoch
            self.count += 1
            self.pause_s_max = max(self.pause_s_max, loop.time() - began_s)


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_member_is_away_and_work_goes_on(etcd: EtcdServer, how: str) -> None:
    """One after the other, so that the leader is among them, and whoever is asked first."""

    async def test() -> None:
        async with opened(settings(etcd), f"one-away-{how}") as directory:
            work = Work(directory)
            await work.goes_on()
            for member in etcd.members:
                member.kill() if how == "kill" else member.freeze()
                await work.goes_on()
                member.start() if how == "kill" else member.thaw()
                await asyncio.to_thread(wait_until, member.answers)
                await work.goes_on()
            await work.stop()
            print(f"longest round with a member away ({how}): {work.pause_s_max:.2f} s")

    run_in_time(test())


def test_a_watch_leaves_a_member_that_stands_still(etcd: EtcdServer) -> None:
    async def test() -> None:
        async with (
            opened(settings(etcd, first=0), "silent") as one,
            opened(settings(etcd, first=1), "silent") as other,
        ):
            watcher = Watcher(one)
            await other.pin(S0, "1")
            await watcher.until(lambda view: view.pins == {S0: "1"})
            etcd.members[0].freeze()
            await other.pin(S0, "2")
            with pytest.raises(ClusterDirectoryUnavailable, match="silent"):
                await watcher.until(lambda view: view.pins == {S0: "2"})
            again = Watcher(one)
            await again.until(lambda view: view.pins == {S0: "2"})
            await other.pin(S0, "3")
            await again.until(lambda view: view.pins == {S0: "3"})
            await again.stop()

    run_in_time(test())


def test_a_watch_with_nothing_to_say_goes_on(etcd: EtcdServer) -> None:
    """Longer than it may be silent: etcd is asked for signs of life."""

    async def test() -> None:
        async with (
            opened(settings(etcd), "idle") as one,
            opened(settings(etcd), "busy") as other,
        ):
            watcher = Watcher(one)
            await watcher.until(lambda view: True)
            # Two seconds, by etcd's clock.
            for _ in range(2):
                elsewhere = Watcher(other)
                assert await other.join(await other.grant(SHORT_MS), A, MEMBER)
                await elsewhere.until(lambda view: A in view.members)
                await elsewhere.until(lambda view: not view.members)
                await elsewhere.stop()
            await one.pin(S0, "1")
            await watcher.until(lambda view: view.pins == {S0: "1"})
            await watcher.stop()

    run_in_time(test())


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_without_a_majority_nothing_is_answered_and_then_all_goes_on(
    etcd: EtcdServer, how: str
) -> None:
    async def test() -> None:
        async with opened(settings(etcd, call_timeout_ms=2_000), f"two-away-{how}") as directory:
            await until(lambda: _is_answered(directory))
            lease = await directory.grant(LONG_MS)
            assert await directory.join(lease, A, MEMBER)
            epoch = await directory.claim(lease, S0, "a")
            assert epoch
            watcher = await watching(directory)
            away = etcd.members[1:]
            for member in away:
                member.kill() if how == "kill" else member.freeze()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            results = await asyncio.gather(
                directory.renew(lease),
                directory.claim(lease, S1, "a"),
                directory.grant(LONG_MS),
                directory.format(None),
                directory.pin(S0, "a"),
                present(directory),
                return_exceptions=True,
            )
            for result in results:
                assert isinstance(result, ClusterDirectoryUnavailable)
                assert "does not answer within 2000 ms" in str(result)
            print(f"six calls without a majority ({how}): {loop.time() - began_s:.2f} s")
            with pytest.raises(ClusterDirectoryUnavailable):
                await watcher.until(lambda view: False)
            for member in away:
                member.start() if how == "kill" else member.thaw()
            await until(lambda: _is_answered(directory))
            await directory.renew(lease)
            assert await directory.claim(lease, S0, "a") == epoch
            view = await present(directory)
            assert view.members == {A: MEMBER}
            assert view.shard_owners[S0] == ShardOwner("a", epoch)

    run_in_time(test())


def test_etcd_is_started_again(etcd: EtcdServer) -> None:
    """Leases go on where they were; whoever has a shard keeps it."""

    async def test() -> None:
        async with opened(settings(etcd), "restart") as directory:
            assert await directory.format(FORMAT) == FORMAT
            lease = await directory.grant(LONG_MS)
            assert await directory.join(lease, A, MEMBER)
            epoch = await directory.claim(lease, S0, "a")
            before = await present(directory)
            waiting = await watching(directory)
            etcd.kill()
            with pytest.raises(ClusterDirectoryUnavailable):
                await waiting.until(lambda view: False)
            for member in etcd.members:
                member.start()
            assert await directory.format(None) == FORMAT
            await directory.renew(lease)
            assert await directory.claim(lease, S0, "a") == epoch
            after = await present(directory)
            assert (after.members, after.shard_owners) == (before.members, before.shard_owners)

    run_in_time(test())


def test_close_ends_what_waits(etcd: EtcdServer) -> None:
    async def test() -> None:
        async with (
            opened(settings(etcd), "closed") as directory,
            aclosing(directory.watch()) as views,
        ):
            await anext(views)
            waiting = asyncio.ensure_future(anext(views))
            for member in etcd.members:
                member.freeze()
            calls = [
                asyncio.ensure_future(call)
                for call in (directory.format(None), directory.grant(LONG_MS))
            ]
            await turns()
            await directory.close()
            for call in (*calls, waiting):
                with pytest.raises(ClusterDirectoryUnavailable, match="closed"):
                    await call
            with pytest.raises(ClusterDirectoryUnavailable, match="closed"):
                await directory.format(None)

    run_in_time(test())


async def _is_answered(directory: EtcdDirectory) -> bool:
    try:
        await directory.format(None)
    except ClusterDirectoryUnavailable:
        return False
    return True


def test_nobody_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        nobody = EtcdSettings(
            endpoints=("127.0.0.1:1", "127.0.0.1:2"), endpoint_timeout_ms=100, call_timeout_ms=300
        )
        async with opened(nobody, "nobody") as directory:
            with pytest.raises(
                ClusterDirectoryUnavailable, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"
            ):
                await directory.grant(LONG_MS)

    run_in_time(test())
