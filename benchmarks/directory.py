"""Measures how many members and shards etcd carries as the directory of a cluster.

python -m benchmarks.directory HOST:PORT,HOST:PORT,HOST:PORT
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial

import click

from benchmarks.results import quantile
from magnetar_cluster.directory.view import BROKER, Member, MemberName, ShardName
from magnetar_cluster.etcd.etcd_client import EtcdClient
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_rows import Keys
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

LEASE_MS = 600_000
AT_ONCE = 64
LISTS = 20

Call = Callable[[], Awaitable[object]]


async def measured(name: str, calls: Iterable[Call], at_once: int) -> None:
    took_ms: list[float] = []
    rest = iter(calls)

    async def work() -> None:
        for call in rest:
            began_s = time.perf_counter()
            await call()
            took_ms.append((time.perf_counter() - began_s) * 1_000)

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    rate = len(took_ms) / (time.perf_counter() - began_s)
    took_ms.sort()
    print(
        f"{name:8} {at_once:3} at once: p50 {quantile(took_ms, 0.5):6.2f} ms,"
        f" p99 {quantile(took_ms, 0.99):6.2f} ms, {rate:6.0f} /s"
    )


class Cluster:
    """Members and shards, all of one lease."""

    def __init__(self, directory: EtcdDirectory, lease: int, members: int, shards: int) -> None:
        self._directory = directory
        self.lease = lease
        self.names = [f"member-{number:04}" for number in range(members)]
        self.shards = [ShardName(BROKER, number) for number in range(shards)]
        self.epochs: dict[ShardName, int] = {}

    async def join(self, name: str) -> None:
        member = Member(
            address=f"{name}.brokers.internal:6650",
            external_address=f"{name}.example.com:6650",
            version="0.1.0",
        )
        await self._directory.join(self.lease, MemberName(BROKER, name), member)

    async def renew(self) -> None:
        await self._directory.renew(self.lease)

    async def claim(self, shard: ShardName) -> None:
        name = self.names[shard.number % len(self.names)]
        epoch = await self._directory.claim(self.lease, shard, name)
        assert epoch is not None
        self.epochs[shard] = epoch

    async def release(self, shard: ShardName) -> None:
        await self._directory.release(shard, self.epochs.pop(shard))


async def measure(
    directory: EtcdDirectory,
    other: EtcdDirectory,
    cluster: Cluster,
    size: Callable[[], Awaitable[int]],
) -> None:
    joins = [partial(cluster.join, name) for name in cluster.names]
    claims = [partial(cluster.claim, shard) for shard in cluster.shards]
    releases = [partial(cluster.release, shard) for shard in cluster.shards]
    renewals = [cluster.renew] * len(claims)
    for at_once in (1, AT_ONCE):
        await measured("renew", renewals, at_once)
        await measured("claim", claims, at_once)
        await measured("release", releases, at_once)
    await measured("join", joins, AT_ONCE)
    async with aclosing(other.watch()) as views:
        view = await anext(views)
        count = 0
        began_s = time.perf_counter()
        claiming = asyncio.create_task(measured("claim", claims, AT_ONCE))
        while len(view.shard_owners) < len(claims):
            view = await anext(views)
            count += 1
        await claiming
        print(f"a watch saw the claims within {since_ms(began_s):.0f} ms, in {count} views")
        took_ms = []
        for _ in range(LISTS):
            began_s = time.perf_counter()
            async with aclosing(other.watch()) as again:
                assert len((await anext(again)).shard_owners) == len(claims)
            took_ms.append(since_ms(began_s))
        took_ms.sort()
        print(
            f"a new watch has its first view after {quantile(took_ms, 0.5):.1f} ms (p50),"
            f" of {await size()} bytes"
        )
        began_s = time.perf_counter()
        await directory.revoke(cluster.lease)
        while view.shard_owners or view.members:
            view = await anext(views)
        print(f"a watch saw the lease's end, with all rows, within {since_ms(began_s):.0f} ms")


def since_ms(began_s: float) -> float:
    return (time.perf_counter() - began_s) * 1_000


async def listed_bytes(settings: EtcdSettings, name: str) -> int:
    """Return the size of the answer with which a watch begins."""
    client, keys = EtcdClient(settings), Keys(name)
    answer = await client.range(pb.RangeRequest(key=keys.prefix, range_end=keys.end))
    await client.close()
    return answer.ByteSize()


async def run(endpoints: str, members: int, shards: int) -> None:
    name = f"bench-{os.getpid()}"
    settings = EtcdSettings(
        endpoints=tuple(endpoints.split(",")), endpoint_timeout_ms=10_000, call_timeout_ms=30_000
    )
    directory, other = EtcdDirectory(settings, name), EtcdDirectory(settings, name)
    cluster = Cluster(directory, await directory.grant(LEASE_MS), members, shards)
    try:
        await measure(directory, other, cluster, partial(listed_bytes, settings, name))
    finally:
        await directory.revoke(cluster.lease)
        await directory.close()
        await other.close()


@click.command()
@click.argument("endpoints")
@click.option("--members", default=1_000, show_default=True)
@click.option("--shards", default=2_048, show_default=True)
def main(endpoints: str, members: int, shards: int) -> None:
    """Measure a directory in the etcd at ENDPOINTS, and leave nothing there."""
    asyncio.run(run(endpoints, members, shards))


if __name__ == "__main__":
    main()
