"""Clusters on this machine whose servers are killed for good, and when others have their shards."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.results import quantile
from magnetar_cli.cluster.local.local_cluster import CLUSTER_ID, Plan, Running
from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.directory.view import BROKER, MemberName, ShardName, View
from magnetar_cluster.directory.whereabouts import where_is
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.transport.transport import LinkClosed

TOPIC = "failover"
# Members of a kind are called by letters.
KILLS_OF_A_CLUSTER_MAX = 20
RETRY_S = 0.01


class Watch:
    """Views of the directory, as they come."""

    def __init__(self, endpoint: str) -> None:
        self.view = View()
        self._directory = EtcdDirectory(EtcdSettings(endpoints=(endpoint,)), CLUSTER_ID)
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    async def until(self, condition: Callable[[View], bool]) -> float:
        """Wait for a view that meets a condition, and return when it came."""
        while not condition(self.view):
            if self._task.done():
                await self._task
            self._changed.clear()
            await self._changed.wait()
        return time.perf_counter()

    async def taken_over(self, victim: Running, lost: Sequence[ShardName]) -> tuple[float, float]:
        """Return when a killed server's lease ended, and when others had claimed its shards."""
        name = MemberName(victim.kind, victim.name)
        ended_s = await self.until(lambda view: name not in view.members)

        def claimed(view: View) -> bool:
            owners = [view.shard_owners.get(shard) for shard in lost]
            return all(owner is not None and owner.member != victim.name for owner in owners)

        return ended_s, await self.until(claimed)

    async def opened(self, shard: ShardName) -> None:
        """Wait until a shard of brokers takes conversations."""
        transport = GrpcTransport()
        while True:
            try:
                address = str(where_is(self.view, shard).address)
                await transport.connect(address, "Broker", lambda _: None, lambda: None)
                break
            except LinkClosed:
                await asyncio.sleep(RETRY_S)
        await transport.close()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._directory.close()

    async def _follow(self) -> None:
        while True:
            with suppress(ClusterDirectoryUnavailable):
                async for view in self._directory.watch():
                    self.view = view
                    self._changed.set()


def shares(view: View, kind: str) -> dict[str, list[ShardName]]:
    """The shards of each server of a kind."""
    found: dict[str, list[ShardName]] = {
        name.name: [] for name in view.members if name.kind == kind
    }
    for shard, owner in view.shard_owners.items():
        if shard.kind == kind and owner.member in found:
            found[owner.member].append(shard)
    return found


def is_even(view: View, plan: Plan, kind: str) -> bool:
    """Whether all servers of a kind are there, and each has its share."""
    servers, shards = (
        (plan.brokers, plan.broker_shards)
        if kind == BROKER
        else (plan.coordinators, plan.coordinator_shards)
    )
    counts = [len(one) for one in shares(view, kind).values()]
    return len(counts) == servers and sum(counts) == shards and max(counts) - min(counts) <= 1


def clusters(kills: int) -> Iterator[tuple[Path, int]]:
    """Directories for new clusters, and how many servers are to be killed in each."""
    for done in range(0, kills, KILLS_OF_A_CLUSTER_MAX):
        with tempfile.TemporaryDirectory(prefix="magnetar-failover-") as directory:
            yield Path(directory), min(kills - done, KILLS_OF_A_CLUSTER_MAX)


def table_of(stages: Sequence[str], kills: Sequence[Sequence[float]]) -> Table:
    """A row for each stage, of the milliseconds that each kill took to reach it."""
    table = Table("ms since the kill", "median", "p90", "longest", title=f"{len(kills)} kills")
    for stage, values in zip(stages, zip(*kills, strict=True), strict=True):
        table.add_row(stage, *figures(values))
    return table


def figures(values: tuple[float, ...]) -> list[str]:
    ordered = sorted(values)
    return [f"{one:,.0f}" for one in (median(ordered), quantile(ordered, 0.9), ordered[-1])]
