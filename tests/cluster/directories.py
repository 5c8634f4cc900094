"""Directories of clusters, as several members of one cluster use them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from tests.etcd_server import EtcdServer
from tests.waiting import PATIENCE_S

from magnetar_cluster.directory.cluster_directory import ClusterDirectory
from magnetar_cluster.directory.memory_directory import MemoryDirectory, MemoryService
from magnetar_cluster.directory.view import BROKER, Member, MemberName, ShardName, View
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings

A, B = MemberName(BROKER, "a"), MemberName(BROKER, "b")
S0, S1 = ShardName(BROKER, 0), ShardName(BROKER, 1)
MEMBER = Member(address="10.0.0.1:6650", external_address="x.example:1", version="1.2")
LEAVING = replace(MEMBER, leaving=True)
# The shortest that etcd has; for leases that shall end.
SHORT_MS = 1_000
# For leases that shall not.
LONG_MS = 60_000

_numbers = itertools.count()


class Cluster(Protocol):
    """A new cluster, whose members come one by one."""

    def member(self) -> ClusterDirectory:
        """The directory, as another member sees it."""
        ...

    async def close(self) -> None: ...


class EtcdCluster:
    def __init__(self, server: EtcdServer) -> None:
        self._settings = settings(server)
        self.name = f"cluster-{next(_numbers)}"
        self._members: list[EtcdDirectory] = []

    def member(self) -> EtcdDirectory:
        directory = EtcdDirectory(self._settings, self.name)
        self._members.append(directory)
        return directory

    async def close(self) -> None:
        for directory in self._members:
            await directory.close()


class MemoryCluster:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._service = MemoryService(lambda: loop.time() * 1_000)

    def member(self) -> MemoryDirectory:
        return MemoryDirectory(self._service)

    async def close(self) -> None:
        self._service.close()


def settings(server: EtcdServer, **more: object) -> EtcdSettings:
    """Patient enough for a machine that has other work."""
    return EtcdSettings(
        endpoints=server.endpoints,
        endpoint_timeout_ms=5_000,
        call_timeout_ms=20_000,
        silence_ms_max=20_000,
        **more,  # type: ignore[arg-type]
    )


def run(cluster: Callable[[], Cluster], test: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run a test with a new cluster."""

    async def running() -> None:
        made = cluster()
        try:
            await test(made)
        finally:
            await made.close()

    run_in_time(running())


def run_in_time(work: Coroutine[None, None, None]) -> None:
    """Run what may wait for something that never comes, if the code is wrong."""
    asyncio.run(asyncio.wait_for(work, 4 * PATIENCE_S))


class Watcher:
    """Keeps all views that a member saw."""

    def __init__(self, directory: ClusterDirectory, patience_s: float = 30) -> None:
        self.views: list[View] = []
        self._patience_s = patience_s
        self._views = directory.watch()
        self._come = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def until(
        self, condition: Callable[[View], object], patience_s: float | None = None
    ) -> View:
        """Wait for a view; it may be there already."""
        async with asyncio.timeout(patience_s or self._patience_s):
            while not self.views or not condition(self.views[-1]):
                if self._task.done():
                    self._task.result()
                self._come.clear()
                await self._come.wait()
        return self.views[-1]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            async with aclosing(self._views) as views:
                async for view in views:
                    self.views.append(view)
                    self._come.set()
        finally:
            self._come.set()


async def present(directory: ClusterDirectory) -> View:
    """The view of now."""
    async with aclosing(directory.watch()) as views:
        return await anext(views)
