"""Servers whose shards move to another member every few seconds, in the place of fixed ones.

What is true with servers that keep their shards is true with these: `make chaos OWNERS=1`.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random

from tests.etcd_server import EtcdServer
from tests.object_server import BUCKET, ObjectServer
from tests.system.processes import BOTH, BROKER, COORDINATOR, Servers

from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectory,
    ClusterDirectoryUnavailable,
)
from magnetar_cluster.directory.view import MemberName, ShardName
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings

CLUSTER = "moving"
MEMBER_COUNTS = {BROKER: 3, COORDINATOR: 2}
SHARD_COUNTS = {BROKER: 4, COORDINATOR: 1}
MOVE_INTERVAL_SECONDS = 3.0


class MovingServers(Servers):
    """Three brokers and two coordinators on etcd and an object server."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings, counts=MEMBER_COUNTS)
        self._etcd = EtcdServer(directory / "etcd", count=1)
        self._objects = ObjectServer(directory / "objects")
        for kind in BOTH:
            del self.environ[f"MAGNETAR_{kind.upper()}S"]
        self._mover: Mover | None = None

    def _start(self, kinds: tuple[str, ...]) -> None:
        if self._mover is None:
            self._etcd.start()
            self._objects.start()
            self.environ.update(self._objects.environment())
            self._mover = Mover(self._etcd.endpoints)
            self._mover.start()
        super()._start(kinds)

    def stop(self) -> None:
        if self._mover is not None:
            self._mover.stop()
        super().stop()

    def end(self) -> None:
        """... and what they stand on."""
        if self._mover is not None:
            self._mover.stop()
        super().end()
        self._etcd.kill()
        self._objects.kill()

    def _command(self, kind: str, number: int, name: str) -> list[str]:
        return [
            *(kind, "--name", name, "--port", self.port_of(name)),
            *("--etcd", ",".join(self._etcd.endpoints), "--cluster-id", CLUSTER),
            *("--store", f"s3://{BUCKET}/{CLUSTER}"),
            *("--broker-shards", str(SHARD_COUNTS[BROKER])),
            *("--coordinator-shards", str(SHARD_COUNTS[COORDINATOR])),
        ]


class Mover(threading.Thread):
    """Wishes a shard at another member again and again."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        super().__init__(name="mover", daemon=True)
        self._endpoints = endpoints
        self._random = Random(CLUSTER)
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self.move_count = 0

    def run(self) -> None:
        self._loop.run_until_complete(self._run())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self.join()

    async def _run(self) -> None:
        directory = EtcdDirectory(EtcdSettings(endpoints=self._endpoints), CLUSTER)
        try:
            while not self._stopped.is_set():
                try:
                    await self._move(directory)
                except ClusterDirectoryUnavailable:
                    pass  # It is tried again.
                try:
                    async with asyncio.timeout(MOVE_INTERVAL_SECONDS):
                        await self._stopped.wait()
                except TimeoutError:
                    pass
        finally:
            await directory.close()

    async def _move(self, directory: ClusterDirectory) -> None:
        async for view in directory.watch():
            kind = self._random.choice((BROKER, BROKER, COORDINATOR))
            shard = ShardName(kind, self._random.randrange(SHARD_COUNTS[kind]))
            owner = view.shard_owners.get(shard)
            others = [
                one
                for one in sorted(view.members)
                if one.kind == kind and (owner is None or one != MemberName(kind, owner.member))
            ]
            if owner is not None and others:
                await directory.pin(shard, self._random.choice(others).name)
                self.move_count += 1
            return
