"""Members of a cluster whose shards change their owner, as processes.

Each member's log is a file of its own. Nothing is started again that was killed.
"""

from __future__ import annotations

import itertools
import json
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cluster import directories
from tests.environment import without_settings
from tests.etcd_server import EtcdServer
from tests.fork_server import ForkedProcess
from tests.freezing import freeze, thaw
from tests.object_server import BUCKET, ObjectServer
from tests.waiting import wait_until

from magnetar_cluster.directory.view import BROKER, COORDINATOR, Format, ShardName, View
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory

# Longer than the program's default: other work may keep this machine's processors.
LEASE_MS = 4_000
FORMAT = Format(broker_shards=6, coordinator_shards=2)
SHARDS = (*FORMAT.shards(BROKER), *FORMAT.shards(COORDINATOR))
READY_S = 60.0
STOPPED_S = 60.0


# Three members have the shards of brokers, two those of coordinators.
BROKERS = {"a": BROKER, "b": BROKER, "c": BROKER}
COORDINATORS = {"x": COORDINATOR, "y": COORDINATOR}
_numbers = itertools.count(1)


class Members:
    """Member processes of a cluster.

    Args:
        settings: MAGNETAR_... variables for all members.
    """

    def __init__(
        self,
        directory: Path,
        etcd: EtcdServer,
        objects: ObjectServer,
        cluster_id: str,
        settings: Mapping[str, str],
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._etcd = etcd
        self.cluster_id = cluster_id
        self.environ = {
            **without_settings(),
            **objects.environment(),
            "MAGNETAR_ETCD": ",".join(etcd.endpoints),
            "MAGNETAR_STORE": f"s3://{BUCKET}/owners/{cluster_id}",
            "MAGNETAR_CLUSTER_ID": cluster_id,
            "MAGNETAR_BROKER_SHARDS": str(FORMAT.broker_shards),
            "MAGNETAR_COORDINATOR_SHARDS": str(FORMAT.coordinator_shards),
            "MAGNETAR_LEASE_DURATION_MS": str(LEASE_MS),
            "MAGNETAR_METRICS_PORT": "0",
            **settings,
        }
        self._processes: dict[str, ForkedProcess] = {}
        self._ready: dict[str, dict[str, str]] = {}

    def start(self, **kinds: str) -> None:
        """Start members, as a="broker", and wait until the directory knows them."""
        self.start_with({}, **kinds)

    def start_again(self, **kinds: str) -> None:
        """Start members where they were before, as on machines with fixed ports."""
        for name in kinds:
            self._ready_file(name).unlink()
        ports = {name: self.address(name).rpartition(":")[2] for name in kinds}
        self.start_with({}, ports, **kinds)

    def start_with(
        self, settings: Mapping[str, str], ports: Mapping[str, str] | None = None, /, **kinds: str
    ) -> None:
        """Do the same with further variables, or certain ports, for these members."""
        for name, kind in kinds.items():
            with self._log(name).open("ab") as log:
                self._processes[name] = ForkedProcess(
                    *(kind, "--name", name, "--port", (ports or {}).get(name, "0")),
                    *("--ready-file", str(self._ready_file(name)), "--log-format", "text"),
                    stdout=log,
                    stderr=log,
                    environ={**self.environ, **settings},
                )
        for name in kinds:
            wait_until(lambda name=name: self._is_ready(name), READY_S)  # type: ignore[misc]
            self._ready[name] = json.loads(self._ready_file(name).read_text())

    def address(self, name: str) -> str:
        return self._ready[name]["address"]

    def addresses(self) -> list[str]:
        """Of all members that run."""
        return [self.address(name) for name in self._processes]

    def metric(self, name: str, metric: str) -> float:
        """What a member's metric is now, summed up over its labels."""
        found = 0.0
        with urllib.request.urlopen(self._ready[name]["metrics"], timeout=20) as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith((f"{metric} ", f"{metric}{{")):
                    found += float(line.split()[-1])
        return found

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def freeze(self, name: str) -> None:
        """Stop a member where it stands."""
        freeze(self._processes[name].pid)

    def thaw(self, name: str) -> None:
        thaw(self._processes[name].pid)

    def stop(self, name: str, *, status: int = 0) -> None:
        """Tell a member to stop, and wait until it has gone with this exit status."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_S) == status, self.log(name)

    def ended(self, name: str) -> int:
        """Wait until a member has ended by itself, and return its exit status."""
        return self._processes.pop(name).wait(STOPPED_S)

    def runs(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def log(self, name: str) -> str:
        return self._log(name).read_text()

    def close(self) -> None:
        """Kill all, and complain about tracebacks in their logs."""
        for name in list(self._processes):
            self.kill(name)
        for log in self._directory.glob("*.log"):
            assert "Traceback" not in log.read_text(), log.read_text()[-20_000:]

    def directory(self) -> EtcdDirectory:
        """The cluster's directory, as an administrator sees it."""
        return EtcdDirectory(directories.settings(self._etcd), self.cluster_id)

    def _is_ready(self, name: str) -> bool:
        assert self.runs(name), self.log(name)
        return self._ready_file(name).exists()

    def _ready_file(self, name: str) -> Path:
        return self._directory / f"{name}.ready"

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def started(
    directory: Path,
    etcd: EtcdServer,
    objects: ObjectServer,
    settings: Mapping[str, str],
    **kinds: str,
) -> Iterator[Members]:
    """For fixtures: members of a new cluster, until the test is done."""
    cluster_id = f"owners-{next(_numbers)}"
    members = Members(directory / "members", etcd, objects, cluster_id, settings)
    try:
        members.start(**kinds)
        yield members
    finally:
        members.close()


class Watcher(directories.Watcher):
    """Follows what the directory says, and closes it in the end."""

    def __init__(self, directory: EtcdDirectory) -> None:
        super().__init__(directory, patience_s=60.0)
        self._directory = directory

    @property
    def view(self) -> View:
        """The last one."""
        return self.views[-1] if self.views else View()

    async def owned(self, without: str) -> None:
        """Wait until each shard has an owner, and none of them is a certain member."""

        def is_so(view: View) -> bool:
            return all(
                shard in view.shard_owners and view.shard_owners[shard].member != without
                for shard in SHARDS
            )

        await self.until(is_so)

    async def close(self) -> None:
        await self.stop()
        await self._directory.close()


def shards_of(view: View, member: str, kind: str) -> list[ShardName]:
    """The shards that a member has."""
    return [
        shard
        for shard, owner in sorted(view.shard_owners.items())
        if (shard.kind, owner.member) == (kind, member)
    ]


def is_even(view: View) -> bool:
    """Whether each member has its share."""
    shares = {name: len(shards_of(view, name.name, name.kind)) for name in view.members}
    for kind in (BROKER, COORDINATOR):
        counts = [count for name, count in shares.items() if name.kind == kind]
        if sum(counts) != len(FORMAT.shards(kind)) or max(counts) - min(counts) > 1:
            return False
    return True
