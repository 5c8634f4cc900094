"""Magnetar: `magnetar standalone`, a broker and a coordinator, from this repository."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from benchmarks.peers.processes import NotRunning, has_ended
from benchmarks.peers.system import LEFT_TO_THE_OS, SYNCED, Running, System
from benchmarks.servers import Servers, started


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


def _client(language: str) -> list[str]:
    assert language == "python"
    return [sys.executable, "-m", "benchmarks.peers.clients.magnetar_client"]


SYSTEMS = tuple(
    System(
        name="magnetar",
        durability=one,
        start=partial(_started, durability=one),
        client=_client,
    )
    for one in (SYNCED, LEFT_TO_THE_OS)
)
