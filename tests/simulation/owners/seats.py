"""A shard as all others see it: a server with a name, whoever has it at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.nodes import ServerNode
from tests.simulation.owners.fenced_store import FencedDisk
from tests.simulation.places import Place
from tests.virtual_loop import VirtualClock

from magnetar_cluster.directory.view import ShardName

if TYPE_CHECKING:
    from tests.simulation.nodes import Environment
    from tests.simulation.owners.members import MemberNode
    from tests.simulation.owners.opening import Opening


class Seat(Place):
    """A shard and its rows.

    It stands where a server node stands in a cluster without owners: faults that strike a server
    strike who has the shard.

    Args:
        name: of the server, as checkers and faults know it.
        families: of its store.
    """

    disk: FencedDisk

    def __init__(
        self, environment: Environment, name: str, shard: ShardName, families: tuple[str, ...]
    ) -> None:
        disk = FencedDisk(environment.random(f"disk/{name}"))
        super().__init__(environment, name, families, disk)
        self.shard = shard
        self.opening: Opening | None = None
        # How often it was opened.
        self.life = 0
        self._random = environment.random(f"seat/{name}")
        # Members that fell with it, and are to come back with it.
        self._fallen: list[MemberNode] = []

    @property
    def server(self) -> Any:
        assert self.opening is not None
        return self.opening.server

    @property
    def alive(self) -> bool:
        """Whether somebody has it open who still lives."""
        return self.opening is not None and self.opening.node.alive

    @property
    def sync_seconds_max(self) -> float:
        """The longest time that a write may take now until it is durable."""
        return self.disk.seconds_max()

    @property
    def clock(self) -> VirtualClock:
        """That of who has it."""
        return self.opening.node.clock if self.opening is not None else _NO_CLOCK

    def opened(self, opening: Opening) -> None:
        self.opening = opening
        self.life += 1
        self.ready_at = self.environment.loop.time()
        self.environment.trace.event("ready", f"{self.name} {opening.epoch} {opening.node.name}")
        self.ready.set()
        self.on_ready()

    def closed(self, opening: Opening) -> None:
        """Who had it has let go of it, or is dead."""
        if self.opening is opening:
            self.opening = None
            self.ready.clear()

    # Faults.

    def start(self) -> None:
        """It is started by whoever claims it."""

    def crash(self, *, power_loss: bool) -> None:
        """The process of who has it ends."""
        if self.opening is None:
            return
        node = self.opening.node
        if not node.alive:
            return
        self.crash_count += 1
        node.kill()
        self._fallen.append(node)
        if self.restarts:
            delay = self._random.uniform(0.01, self.restart_seconds_max)
            self.environment.loop.call_later(delay, self.rise)

    def rise(self) -> None:
        """What fell comes back."""
        self.restarts = True
        fallen, self._fallen = self._fallen, []
        for node in fallen:
            if not node.alive:
                node.start()


# Nobody's.
_NO_CLOCK = VirtualClock()
# What stands at a place among the servers of a world.
AnyServer = ServerNode | Seat
