"""What the comparison needs of a system, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Every acknowledged message is on the disk, or only in the memory of the operating system.
SYNCED, LEFT_TO_THE_OS = "synced", "os"
DURABILITIES = {SYNCED: "synced", LEFT_TO_THE_OS: "left to the OS"}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system with one kind of durability.

    Attributes:
        name: "magnetar", "kafka" or "pulsar".
        durability: SYNCED or LEFT_TO_THE_OS.
        start: run the servers for the time of a block, with all their files in a directory.
        client: the command of a client, by its language: "java" or "python".
    """

    name: str
    durability: str
    start: Callable[[Path], AbstractContextManager[Running]]
    client: Callable[[str], list[str]]

    @property
    def choice(self) -> str:
        """Its name on the command line."""
        return f"{self.name}-{self.durability}"

    @property
    def title(self) -> str:
        return f"{self.name.capitalize()}, {DURABILITIES[self.durability]}"
