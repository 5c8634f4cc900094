"""The interface of a system in the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Every acknowledged message is on the disk, or only in the memory of the operating system, or where
# it outlives any one server.
SYNCED, LEFT_TO_THE_OS, CLUSTER = "synced", "os", "cluster"
DURABILITIES = {SYNCED: "synced", LEFT_TO_THE_OS: "left to the OS", CLUSTER: "cluster"}
# What a cluster does when a server is killed is measured by itself: benchmarks.failover.
NOT_OF_CLUSTERS = frozenset({"restart"})


class Running(Protocol):
    """A system whose servers run on loopback."""

    def settings(self) -> dict[str, str]:
        """Say where the servers are, as settings for the clients' tasks."""
        ...

    def pids(self) -> Sequence[int]:
        """Return the processes of all servers, whose time and memory are measured."""
        ...

    def kill(self) -> None:
        """Kill the server that takes messages with SIGKILL, and start it again."""
        ...

    def check(self) -> None:
        """Raise NotRunning unless the servers run."""
        ...


# Runs the servers for the time of a block, with all their files in a directory.
Start = Callable[[Path], AbstractContextManager[Running]]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system with one kind of durability.

    Attributes:
        name: "magnetar", "kafka" or "pulsar".
        durability: SYNCED, LEFT_TO_THE_OS or CLUSTER.
        start: runs the servers.
        client: the command of a client, by its language: "java" or "python".
    """

    name: str
    durability: str
    start: Start
    client: Callable[[str], list[str]]

    @property
    def choice(self) -> str:
        """Its name on the command line."""
        return f"{self.name}-{self.durability}"

    def measures(self, row: str) -> bool:
        """Return whether a row is measured of it."""
        return self.durability != CLUSTER or row not in NOT_OF_CLUSTERS

    @property
    def title(self) -> str:
        return f"{self.name.capitalize()}, {DURABILITIES[self.durability]}"
