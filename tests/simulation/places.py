"""Places of servers: what the world, faults and checkers know of each, whatever runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.damaged_reads import Damage
from tests.simulation.slow_reads import Reads

from magnetar_storage.memory.engine import MemoryDisk

if TYPE_CHECKING:
    from tests.simulation.nodes import Environment


class Place:
    """A disk under a name, and what befell the server on it.

    Args:
        families: of its store.

    Attributes:
        ready: whether the server has recovered and listens.
        restarts: off: it stays down after a crash until somebody starts it.
        on_ready: told when it has recovered and listens.
    """

    def __init__(
        self, environment: Environment, name: str, families: tuple[str, ...], disk: MemoryDisk
    ) -> None:
        self.environment = environment
        self.name = name
        self.families = families
        self.disk = disk
        self.damage = Damage(disk)
        self.reads = Reads(environment.random(f"reads/{name}"))
        self.ready = asyncio.Event()
        self.ready_at = 0.0
        self.crash_count = 0
        self.fatal_count = 0
        self.lost_batch_count = 0
        self.restarts = True
        self.restart_seconds_max = 1.0
        self.on_crash: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        # Since when it has next to no room; None: it has.
        self._full_since: float | None = None

    def fill_disk(self) -> None:
        self.disk.free_bytes = 1 << 20
        if self._full_since is None:
            self._full_since = self.environment.loop.time()

    def free_disk(self) -> None:
        self.disk.free_bytes = 1 << 40
        self._full_since = None

    @property
    def full_seconds(self) -> float:
        """For how long its disk has been full; 0: it is not."""
        since = self._full_since
        return 0.0 if since is None else self.environment.loop.time() - since
