"""Nodes: processes that can be killed, and the disks that survive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any

from tests.simulation.network import Network
from tests.simulation.places import Place
from tests.simulation.poison import Poisoned
from tests.simulation.slow_reads import SlowStore
from tests.simulation.trace import Trace
from tests.virtual_loop import VirtualClock, VirtualLoop

from magnetar.testing.lives import Incarnation, UnhandledException
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import StoreFailed


class Environment:
    """What every node shares."""

    def __init__(self, loop: VirtualLoop, network: Network, trace: Trace, seed: str) -> None:
        self.loop = loop
        self.network = network
        self.trace = trace
        self.seed = seed

    def random(self, purpose: str) -> Random:
        """A stream of chance of its own: no purpose disturbs another's."""
        return Random(f"{self.seed}/{purpose}")


class Node:
    """Something with a name, a clock, and lives that end."""

    def __init__(self, environment: Environment, name: str) -> None:
        self.environment = environment
        self.name = name
        self.random = environment.random(f"node/{name}")
        self.clock = VirtualClock(
            environment.loop, wall_offset_ms=self.random.randint(-5_000, 5_000)
        )
        self.incarnation: Incarnation | None = None
        self.life = 0

    @property
    def alive(self) -> bool:
        return self.incarnation is not None and self.incarnation.alive

    def begin_life(self) -> Incarnation:
        assert not self.alive, f"{self.name} lives already"
        self.life += 1
        self.incarnation = self.environment.loop.incarnate(self.name)
        self.clock.monotonic_offset_ms = self.random.uniform(0.0, 1e9)
        self.environment.trace.event("start", f"{self.name} life {self.life}")
        return self.incarnation

    def end_life(self) -> None:
        assert self.incarnation is not None
        self.environment.trace.event("crash", f"{self.name} life {self.life}")
        self.environment.loop.kill(self.incarnation)
        self.environment.network.crash(self.incarnation)


# Makes the server of one life, and its acceptors by service.
MakeServer = Callable[["ServerNode", MemoryStore, Incarnation], tuple[Any, dict[str, Any]]]


class ServerNode(Node, Place):
    """A server and its disk.

    Args:
        make: makes the server of one life.
        families: of its store.
        late_syncs: whether it confirms plain messages before it syncs.
        stays_powered: its machine never goes down, since clients hold it to all that it confirms;
            its process does instead.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        make: MakeServer,
        families: tuple[str, ...],
        *,
        late_syncs: bool = False,
        stays_powered: bool = False,
    ) -> None:
        Node.__init__(self, environment, name)
        disk = MemoryDisk(random=environment.random(f"disk/{name}"))
        disk.write_seconds = 0.0
        disk.sync_seconds = 0.0004
        Place.__init__(self, environment, name, families, disk)
        self._make = make
        self._late_syncs = late_syncs
        self._stays_powered = stays_powered
        self.server: Any = None

    def start(self) -> None:
        """Begin a life; it listens once it has recovered."""
        incarnation = self.begin_life()
        loop = self.environment.loop
        loop.spawn(incarnation, self._live(incarnation), name=f"{self.name} main")

    async def _live(self, incarnation: Incarnation) -> None:
        try:
            store = SlowStore(self.disk, self.families, self.reads, late_syncs=self._late_syncs)
            self.server, acceptors = self._make(self, store, incarnation)
            await self.server.start()
        except Exception as error:
            if incarnation.alive:
                self.on_fatal(error)
            return
        for service, acceptor in acceptors.items():
            self.environment.network.listen(self.name, service, incarnation, acceptor)
        self.environment.trace.event("ready", f"{self.name} life {self.life}")
        self.ready_at = self.environment.loop.time()
        self.ready.set()
        self.on_ready()

    def on_fatal(self, error: BaseException) -> None:
        """The server found that it cannot go on; it ends at once."""
        if self.incarnation is None or not self.incarnation.alive:
            return
        self.environment.trace.event("fatal", f"{self.name}: {type(error).__name__}")
        if not isinstance(error, StoreFailed | Poisoned):
            failure = UnhandledException(f"{self.name} gave up: {error!r}")
            failure.__cause__ = error
            self.environment.loop.fail(failure)
        self.incarnation.failing = True
        self.fatal_count += 1
        self.crash(power_loss=self.random.random() < 0.5)

    def crash(self, *, power_loss: bool) -> None:
        """Kill it: what was not synced survives, or is lost to a random extent."""
        if not self.alive:
            return
        power_loss = power_loss and not self._stays_powered
        self.crash_count += 1
        self.ready.clear()
        self.end_life()
        self.on_crash()
        # The dead process holds its last objects; nothing that they do has an effect.
        self.lost_batch_count += self.disk.crash(self.random if power_loss else None)
        self.server = None
        if self.restarts:
            delay = self.random.uniform(0.01, self.restart_seconds_max)
            self.environment.loop.call_later(delay, self._restart, context=Context())

    def _restart(self) -> None:
        if not self.alive and self.restarts:
            self.start()

    def rise(self) -> None:
        """It comes back from a crash after which it was to stay down."""
        self.restarts = True
        if not self.alive:
            self.start()

    @property
    def sync_seconds_max(self) -> float:
        """The longest time that a write may take now until it is durable."""
        return self.disk.sync_seconds


# A client program: what a process does with its life.
Program = Callable[["ClientNode"], Coroutine[Any, Any, None]]


class ClientNode(Node):
    """A client process that runs one program, from its beginning in every life."""

    def __init__(self, environment: Environment, name: str, program: Program) -> None:
        super().__init__(environment, name)
        self._program = program
        self.crash_count = 0
        # The program should come to an end on its own.
        self.stopping = False
        self.main: asyncio.Task[None] | None = None

    def start(self) -> None:
        incarnation = self.begin_life()
        self.main = self.environment.loop.spawn(incarnation, self._run(), name=f"{self.name} main")

    async def _run(self) -> None:
        try:
            await self._program(self)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            error.add_note(f"in the program of {self.name}")
            self.environment.loop.fail(error)

    @property
    def finished(self) -> bool:
        return self.main is not None and self.main.done()

    def transport(self) -> Any:
        assert self.incarnation is not None
        return self.environment.network.transport(self.incarnation)

    def crash(self, *, restart_after: float | None) -> None:
        if not self.alive:
            return
        self.crash_count += 1
        self.end_life()
        if restart_after is not None:
            self.environment.loop.call_later(restart_after, self._restart, context=Context())

    def _restart(self) -> None:
        if not self.alive and not self.stopping:
            self.start()
