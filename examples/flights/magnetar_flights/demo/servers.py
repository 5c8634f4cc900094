"""The servers that the demo starts: with a supervisor, or with owners of shards that change."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import click

from magnetar_cli.cluster import changes
from magnetar_cli.cluster.changes import Known
from magnetar_cli.cluster.local.local_cluster import LocalCluster, Plan
from magnetar_cli.cluster.local.outside_server import DidNotStart
from magnetar_cli.cluster.options import open_directory
from magnetar_cli.log_end import end_of_log
from magnetar_cli.servers.supervisor import PROGRAM, ChildFailed
from magnetar_cluster.directory.view import BROKER, KINDS
from magnetar_flights.demo.processes import stop
from magnetar_flights.demo.verify import Check

# For a cluster whose owners change.
BROKERS, COORDINATORS = 3, 2
# The demo is short: a broker that joins must get shards before it ends.
SETTLING_MS = 1_000
BALANCE_S_MAX = 60.0


class Servers(Protocol):
    """Servers that may be killed.

    Attributes:
        title: what they are, in a few words.
    """

    title: str

    async def start(self) -> str:
        """Start the servers, wait until they are ready, and return the brokers' addresses.

        Raises:
            click.ClickException: they could not start; the message says why.
        """
        ...

    def pids(self, kind: str) -> list[int]:
        """Return the present process ids of each "broker", or of each "coordinator"."""
        ...

    async def replace(self, kind: str) -> str:
        """Start a server in place of one that was killed for good; returns its name."""
        ...

    async def checks(self) -> list[Check]:
        """Check the servers themselves, at the end."""
        ...

    async def stop(self) -> None:
        """Stop the servers."""
        ...


class Standalone:
    """`magnetar standalone` as a child process: brokers, a coordinator, and their supervisor."""

    def __init__(self, directory: Path, broker_count: int = 1) -> None:
        brokers = "a broker" if broker_count == 1 else f"{broker_count} brokers"
        self.title = f"{brokers} and a coordinator"
        self.log = directory / "servers.log"
        self._directory = directory
        self._broker_count = broker_count
        self._ready_file = directory / "ready.json"
        self._process: Process | None = None

    async def start(self) -> str:
        """Start the servers, wait until they are ready, and return the brokers' addresses.

        Raises:
            click.ClickException: they could not start; the message has the end of their log.
        """
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                *("standalone", "--data-dir", str(self._directory / "data"), "--port", "0"),
                *("--brokers", str(self._broker_count)),
                *("--ready-file", str(self._ready_file), "--supervised"),
                # Never written: its end tells them that the demo has gone.
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                # Ctrl-C is for the demo, which then stops them in order.
                start_new_session=True,
            )
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise click.ClickException(f"the servers did not start:\n{end_of_log(self.log)}")
        return ",".join(one["address"] for one in self._ready()["brokers"])

    def pids(self, kind: str) -> list[int]:
        """Return the present process ids of each "broker", or of each "coordinator"."""
        return [one["pid"] for one in self._ready()[f"{kind}s"]]

    async def replace(self, kind: str) -> str:
        """Start none: the supervisor has started the killed one again."""
        return ""

    async def checks(self) -> list[Check]:
        """Return no checks: the same servers run as in the beginning."""
        return []

    async def stop(self) -> None:
        """Stop the servers."""
        if self._process is not None:
            await stop(self._process, lambda process: process.terminate())

    def _ready(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._ready_file.read_text())
        return content


class Cluster:
    """Brokers and coordinators with etcd and an object store. Killed ones do not come back."""

    def __init__(self, directory: Path) -> None:
        self.title = f"{BROKERS} brokers and {COORDINATORS} coordinators, with etcd and objects,"
        self._cluster = LocalCluster(
            Plan(
                directory=directory / "cluster",
                brokers=BROKERS,
                coordinators=COORDINATORS,
                settings={"MAGNETAR_SETTLING_MS": str(SETTLING_MS)},
            )
        )
        self._joined: list[str] = []

    async def start(self) -> str:
        """Start the servers, as Servers.start. Each member has shards when it returns."""
        try:
            await self._cluster.start()
        except (DidNotStart, ChildFailed) as error:
            raise click.ClickException(f"the servers did not start: {error}") from None
        await self._until_balanced()
        return self._cluster.variables["MAGNETAR_BROKER"]

    def pids(self, kind: str) -> list[int]:
        """Return process ids, as Servers.pids."""
        return [one.pid for one in self._cluster.running() if one.kind == kind]

    async def replace(self, kind: str) -> str:
        """Add a broker for a killed one, as Servers.replace. A coordinator is not replaced."""
        if kind != BROKER:
            return ""
        joined = await self._cluster.add(kind)
        self._joined.append(joined.name)
        return joined.name

    async def checks(self) -> list[Check]:
        """Check that each shard is with a member that is alive, and that new brokers have some."""
        now = await self._until_balanced()
        shards = [shard for kind in KINDS for shard in now.fixed.shards(kind)]
        owners = {
            shard: now.view.shard_owners[shard].member
            for shard in shards
            if shard in now.view.shard_owners
        }
        counts = Counter(owners.values())
        differences = [
            *(f"{shard} has no owner" for shard in shards if shard not in owners),
            *(f"{name} has no shard" for name in self._joined if not counts[name]),
        ]
        found = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        return [
            Check("Every shard has an owner, and new brokers have some", found, tuple(differences))
        ]

    async def stop(self) -> None:
        """Stop the servers, as Servers.stop."""
        await self._cluster.stop()

    async def _until_balanced(self) -> Known:
        """Wait until each shard is at its desired member, but not longer than BALANCE_S_MAX."""
        variables = self._cluster.variables
        directory = open_directory(variables["MAGNETAR_ETCD"], variables["MAGNETAR_CLUSTER_ID"])
        try:
            now = await changes.known(directory)
            async with asyncio.timeout(BALANCE_S_MAX):
                await changes.until_balanced(directory, now.fixed, lambda done, total: None)
            return await changes.known(directory)
        except TimeoutError:
            raise click.ClickException(
                f"the shards did not find their owners within {BALANCE_S_MAX:.0f} s; --keep-data"
                " keeps the logs"
            ) from None
        finally:
            await directory.close()
