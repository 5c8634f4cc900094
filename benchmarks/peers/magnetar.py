"""Magnetar from this repository: `magnetar standalone`, or the cluster of `magnetar cluster up`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from benchmarks.peers.processes import NotRunning, Process, has_ended, running
from benchmarks.peers.system import CLUSTER, LEFT_TO_THE_OS, SYNCED, Running, Start, System
from benchmarks.servers import Servers, started

CLUSTER_START_WITHIN_S = 120.0


class _Standalone(Running):
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._supervisor_pid = psutil.Process(servers.broker_pid).ppid()

    def settings(self) -> dict[str, str]:
        return {"address": self._servers.address}

    def pids(self) -> Sequence[int]:
        ready = self._servers.ready()
        found = (ready.get(kind, {}).get("pid") for kind in ("broker", "coordinator"))
        return [self._supervisor_pid, *(pid for pid in found if pid is not None)]

    def kill(self) -> None:
        """Kill the broker; its supervisor starts it again."""
        os.kill(self._servers.ready()["broker"]["pid"], signal.SIGKILL)

    def check(self) -> None:
        # It starts its servers again, so only its own end is one.
        if has_ended(self._supervisor_pid):
            raise NotRunning("the supervisor has ended")


@contextmanager
def _started(directory: Path, durability: str) -> Iterator[Running]:
    settings = {"MAGNETAR_DURABILITY": durability}
    with started(directory, restart=True, settings=settings) as servers:
        yield _Standalone(servers)


class _Cluster(Running):
    def __init__(self, process: Process, ready_file: Path) -> None:
        self._process = process
        ready = json.loads(ready_file.read_text())
        self._address = ready["environment"]["MAGNETAR_BROKER"]
        self._pids = [int(one["pid"]) for one in ready["servers"]]

    def settings(self) -> dict[str, str]:
        return {"address": self._address}

    def pids(self) -> Sequence[int]:
        """Etcd and the object server are among them."""
        return [self._process.pid, *self._pids]

    def kill(self) -> None:
        """Refuse: no row of a cluster kills a server."""
        raise NotImplementedError

    def check(self) -> None:
        self._process.check()
        if any(map(has_ended, self._pids)):
            raise NotRunning("a server has ended; its log is beside the others")


@contextmanager
def _cluster_started(directory: Path) -> Iterator[Running]:
    ready_file = directory / "ready.json"
    command = [
        *(sys.executable, "-m", "magnetar_cli", "cluster", "up", "--port", "0"),
        *("--data-dir", str(directory / "data"), "--ready-file", str(ready_file)),
    ]
    with running(command, directory / "cluster.log") as process:
        process.wait_until(ready_file.exists, CLUSTER_START_WITHIN_S)
        yield _Cluster(process, ready_file)


def _client(language: str) -> list[str]:
    assert language == "python"
    return [sys.executable, "-m", "benchmarks.peers.clients.magnetar_client"]


STARTS: Mapping[str, Start] = {
    SYNCED: partial(_started, durability=SYNCED),
    LEFT_TO_THE_OS: partial(_started, durability=LEFT_TO_THE_OS),
    CLUSTER: _cluster_started,
}
SYSTEMS = tuple(
    System(name="magnetar", durability=one, start=start, client=_client)
    for one, start in STARTS.items()
)
