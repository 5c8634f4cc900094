"""Answers of etcd that are lost, and questions that reach it twice or late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace

import pytest
from tests.cluster.directories import (
    LONG_MS,
    MEMBER,
    S0,
    S1,
    A,
    B,
    EtcdCluster,
    present,
    run_in_time,
)
from tests.etcd_server import EtcdServer
from tests.tcp_proxy import TcpProxy

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable, LeaseExpired
from magnetar_cluster.directory.view import Format, Member, ShardOwner
from magnetar_cluster.etcd.etcd_client import EtcdRefused
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd.etcd_watch import EtcdWatch
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

FORMAT = Format(broker_shards=8, coordinator_shards=2)


@pytest.fixture
def proxy(etcd_server: EtcdServer) -> Iterator[TcpProxy]:
    """Between a client and the first member of etcd; loses answers when it is told to."""
    between = TcpProxy(etcd_server.members[0].port)
    between.start()
    yield between
    between.stop()


@asynccontextmanager
async def opened(cluster: str, *endpoints: str) -> AsyncIterator[EtcdDirectory]:
    directory = EtcdDirectory(
        EtcdSettings(
            endpoints=endpoints,
            endpoint_timeout_ms=5_000 if len(endpoints) > 1 else 1_000,
            # One endpoint alone fails at once, again and again.
            call_timeout_ms=20_000 if len(endpoints) > 1 else 1_000,
            silence_ms_max=20_000,
        ),
        cluster,
    )
    try:
        yield directory
    finally:
        await directory.close()


def losing(proxy: TcpProxy, key: bytes) -> None:
    """Lose the answers to all that names a key."""
    proxy.lose_answers = lambda request: key in request


def test_a_lost_answer_is_asked_for_at_the_next_endpoint(
    etcd_server: EtcdServer, proxy: TcpProxy
) -> None:
    """What was asked has had its effect; the repeat finds it, and says the same."""

    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        other = cluster.member()
        first = f"127.0.0.1:{proxy.port}"
        async with opened(cluster.name, first, etcd_server.endpoints[1]) as one:
            lease = await one.grant(LONG_MS)

            async def lost(key: str) -> None:
                """Whatever names the key next goes through the proxy, and its answer is lost."""
                losing(proxy, key.encode())
                one._client._present = 0

            await lost("/format")
            assert await one.format(FORMAT) == FORMAT
            await lost("/members/broker/a")
            assert await one.join(lease, A, MEMBER)
            await lost("/members/broker/a")
            moved = Member(address="10.0.0.9:1")
            assert await one.join(lease, A, moved)
            await lost("/owners/broker/0")
            epoch = await one.claim(lease, S0, "a")
            await lost("/pins/broker/0")
            await one.pin(S0, "a")
            await lost("/draining/broker/a")
            await one.drain(A, draining=True)
            view = await present(other)
            assert view.members == {A: moved}
            assert view.shard_owners == {S0: ShardOwner("a", epoch or 0)}
            assert view.pins == {S0: "a"}
            assert view.draining == {A}
            await lost("/owners/broker/0")
            assert epoch
            await one.release(S0, epoch)
            assert (await present(other)).shard_owners == {}
            assert proxy.lost_count >= 7
        await cluster.close()

    run_in_time(test())


def test_a_claim_whose_answer_nobody_heard_may_be_repeated(
    etcd_server: EtcdServer, proxy: TcpProxy
) -> None:
    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        other = cluster.member()
        async with opened(cluster.name, f"127.0.0.1:{proxy.port}") as one:
            lease = await one.grant(LONG_MS)
            losing(proxy, b"/owners/broker/0")
            with pytest.raises(ClusterDirectoryUnavailable):
                await one.claim(lease, S0, "a")
            losing(proxy, b"none")
            owner = (await present(other)).shard_owners[S0]
            assert owner.member == "a"
            assert await one.claim(lease, S0, "a") == owner.epoch
        await cluster.close()

    run_in_time(test())


class Recorder:
    """Notes the transactions of a directory, to send them again."""

    def __init__(self, directory: EtcdDirectory) -> None:
        self.requests: list[pb.TxnRequest] = []
        self._client = directory._client
        self._txn = self._client.txn
        self._client.txn = self._recorded  # type: ignore[method-assign]

    async def _recorded(self, request: pb.TxnRequest) -> pb.TxnResponse:
        self.requests.append(request)
        return await self._txn(request)

    async def again(self) -> None:
        for request in self.requests:
            with suppress(EtcdRefused):
                await self._txn(request)


def test_copies_that_come_late_change_nothing(etcd_server: EtcdServer) -> None:
    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        one, other = cluster.member(), cluster.member()
        recorder = Recorder(one)
        first, second = await one.grant(LONG_MS), await other.grant(LONG_MS)
        await one.format(FORMAT)
        assert await one.join(first, A, MEMBER)
        assert await one.join(first, A, Member(address="10.0.0.3:1"))
        assert await one.join(first, A, Member(address="10.0.0.4:1"))
        epoch = await one.claim(first, S0, "a")
        assert epoch
        await one.release(S0, epoch)
        for member in ("a", "", "b", "", "c"):
            await one.pin(S1, member)
        for draining in (True, False):
            await one.drain(B, draining=draining)
        assert await other.claim(second, S0, "b")

        before = await present(other)
        assert before.pins == {S1: "c"}
        await recorder.again()
        after = await present(other)
        assert replace(after, revision=before.revision) == before

        # The lease is gone, and so is what could be done with it.
        await one.revoke(first)
        before = await present(other)
        assert not before.members
        await recorder.again()
        after = await present(other)
        # A lease of an earlier test may end meanwhile.
        assert replace(after, revision=before.revision) == before
        await cluster.close()

    run_in_time(test())


def test_what_changed_while_a_watch_began_is_seen(etcd_server: EtcdServer) -> None:
    """Between the list and the watch."""

    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        one, other = cluster.member(), cluster.member()
        await before_watching(one, lambda: other.pin(S0, "a"))
        async with aclosing(one.watch()) as views:
            assert (await anext(views)).pins == {}
            view = await anext(views)
            assert view.pins == {S0: "a"}
            await other.pin(S1, "b")
            assert (await anext(views)).pins == {S0: "a", S1: "b"}
        await cluster.close()

    run_in_time(test())


def test_a_watch_breaks_when_etcd_has_forgotten_what_follows(etcd_server: EtcdServer) -> None:
    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        one, other = cluster.member(), cluster.member()

        async def compact() -> None:
            for member in ("a", "b", "c"):
                await other.pin(S0, member)
            revision = (await present(other)).revision
            await asyncio.to_thread(etcd_server.control, "compact", str(revision))

        await before_watching(one, compact)
        async with aclosing(one.watch()) as views:
            await anext(views)
            with pytest.raises(ClusterDirectoryUnavailable, match="forgotten"):
                await anext(views)
        assert (await present(one)).pins == {S0: "c"}
        await cluster.close()

    run_in_time(test())


def test_rows_of_strangers_are_left_out_and_complained_of_once(
    etcd_server: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        one = cluster.member()
        prefix = f"/magnetar/{cluster.name}"

        async def put(key: str, value: str) -> None:
            await asyncio.to_thread(etcd_server.control, "put", prefix + key, value)

        await put("/owners/broker/1", "a")
        await put("/unknown", "x")
        await put("0/pins/broker/0", "another cluster's")
        lease = await one.grant(LONG_MS)
        epoch = await one.claim(lease, S0, "a")
        assert epoch
        async with aclosing(one.watch()) as views:
            assert (await anext(views)).shard_owners == {S0: ShardOwner("a", epoch)}
            await put("/members/broker/b", "no member")
            await one.pin(S0, "a")
            view = await anext(views)
            while not view.pins:
                view = await anext(views)
            assert (view.members, view.pins) == ({}, {S0: "a"})
        assert await one.claim(lease, S1, "a") is None, "the row is there, and not ours"
        for _ in range(2):
            assert (await present(one)).shard_owners == {S0: ShardOwner("a", epoch)}
        await put("/format", "[]")
        with pytest.raises(ClusterDirectoryUnavailable, match="format is damaged"):
            await one.format(FORMAT)
        await cluster.close()

    with caplog.at_level(logging.ERROR):
        run_in_time(test())
    complaints = [one.getMessage() for one in caplog.records]
    assert len(complaints) == 3
    assert sum("bound to no lease; delete it" in one for one in complaints) == 2


def test_a_lease_lasts_whole_seconds_and_no_less_than_was_asked(etcd_server: EtcdServer) -> None:
    async def test() -> None:
        cluster = EtcdCluster(etcd_server)
        one = cluster.member()
        for duration_ms, ttl_s in ((1, 1), (1_000, 1), (1_001, 2), (3_000, 3)):
            lease = await one.grant(duration_ms)
            said = await asyncio.to_thread(etcd_server.control, "lease", "timetolive", f"{lease:x}")
            assert f"granted with TTL({ttl_s}s)" in said
            await one.revoke(lease)
            with pytest.raises(LeaseExpired):
                await one.renew(lease)
        await cluster.close()

    run_in_time(test())


async def before_watching(directory: EtcdDirectory, happens: Callable[[], Awaitable[None]]) -> None:
    """Have something happen once, after the next watch has read all rows and before it begins."""
    client = directory._client
    watch = client.watch

    async def late(key: bytes, end: bytes, revision: int) -> EtcdWatch:
        client.watch = watch  # type: ignore[method-assign]
        await happens()
        return await watch(key, end, revision)

    client.watch = late  # type: ignore[method-assign]
