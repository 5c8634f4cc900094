"""The servers of a test cluster, on an event loop of their own: how each begins, ends and returns.

Everything here runs on that loop; `server.py` is what a test has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from magnetar.client import Client
from magnetar.connecting import connect
from magnetar.testing.faults import Fault, Faults
from magnetar.testing.links import MemoryNetwork, MemoryTransport
from magnetar.testing.lives import Incarnation
from magnetar.testing.names import membership_of
from magnetar.testing.paced_loop import PacedLoop
from magnetar.testing.passing import Passing
from magnetar.testing.shifted_time import FollowedLoop, ShiftedClock
from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_broker.config import BrokerConfig
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES as COORDINATOR_FAMILIES
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.membership import CoordinatorMember, Member
from magnetar_storage import store_identity
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import WriteBatch

T = TypeVar("T")
AnyServer = Broker | Coordinator
# Makes the server of one life, on the store of its disk.
MakeServer = Callable[[MemoryStore], AnyServer]


class Process:
    """A server that can be killed, and the disk that outlives it.

    Attributes:
        life: how often it has been started.
        incarnation: its present life, or its last one.
    """

    def __init__(self, world: World, member: Member, service: str, make: MakeServer) -> None:
        self.name = member.name
        self.life = 0
        self.incarnation: Incarnation | None = None
        self._world = world
        self._address = member.address
        self._service = service
        self._make = make
        self._families = keys.FAMILIES if service == "Broker" else tuple(COORDINATOR_FAMILIES)
        self._disk = MemoryDisk()

    @property
    def is_alive(self) -> bool:
        """Whether it has been started, and not killed since."""
        return self.incarnation is not None and self.incarnation.alive

    async def start(self) -> None:
        """Begin a life, and wait until it takes conversations.

        Raises:
            MagnetarError: it does not start, as a real one would not.
        """
        if self.is_alive:
            return
        self.life += 1
        self.incarnation = self._world.loop.incarnate(self.name)
        work = self._world.loop.spawn(
            self.incarnation, self._live(self.incarnation), name=self.name
        )
        try:
            await work
        except BaseException:
            self.kill()
            raise

    async def _live(self, incarnation: Incarnation) -> None:
        server = self._make(MemoryStore(self._disk, self._families))
        await server.start()
        self._world.network.listen(self._address, self._service, incarnation, server.server)

    def kill(self) -> None:
        """End its life where it stands, as kill -9 would; its disk stays as it is."""
        if self.incarnation is not None and self.incarnation.alive:
            self._world.loop.kill(self.incarnation)
            self._world.network.crash(self.incarnation)
            self._disk.crash()

    def lose_disk(self) -> None:
        """End its life; the next one begins with an empty disk."""
        self.kill()
        self._disk = MemoryDisk()

    async def accept_loss(self) -> None:
        """End its life, and note on its disk that a person accepts what it has lost."""
        self.kill()
        store = MemoryStore(self._disk, self._families)
        row = await store.get(store_identity.IDENTITY_FAMILY, store_identity.KEY)
        if row is not None:
            batch = WriteBatch()
            accepted = store_identity.with_losses(row, store_identity.LOSSES_OF_EVERYTHING, 0)
            batch.put(store_identity.IDENTITY_FAMILY, store_identity.KEY, accepted)
            await store.write(batch)
            await store.sync()
        await store.close()


class World:
    """All servers of a cluster, their network and their time.

    Args:
        host: what the members' addresses end with.
        settings: of brokers, and of coordinators.
    """

    def __init__(
        self,
        host: str,
        brokers: int,
        coordinators: int,
        settings: tuple[Mapping[str, Any], Mapping[str, Any]],
        random: Random,
    ) -> None:
        self.clock = ShiftedClock()
        self.loop = PacedLoop(self.clock.now_s)
        self.faults = Faults()
        self.network = MemoryNetwork(self.loop, self.faults)
        # The loops of clients that follow this time.
        self.followed: dict[asyncio.AbstractEventLoop, FollowedLoop] = {}
        self._random = random
        self._passing: Passing | None = None
        self._membership = membership_of(host.partition(".")[0], host, brokers, coordinators)
        broker_settings, coordinator_settings = settings
        self.processes = {
            one.name: Process(self, one, "Broker", self._maker_of_broker(one, broker_settings))
            for one in self._membership.brokers
        }
        self.processes |= {
            one.name: Process(
                self,
                one,
                "TransactionCoordinator",
                self._maker_of_coordinator(one, coordinator_settings),
            )
            for one in self._membership.coordinators
        }

    @property
    def addresses(self) -> str:
        """The addresses of all brokers."""
        return ",".join(one.address for one in self._membership.brokers)

    async def start(self) -> None:
        """Start all servers; each finds the servers that it asks."""
        for one in self.processes.values():
            await one.start()

    async def advance(self, seconds: float) -> None:
        """Let time pass for servers and clients: see Passing."""
        if self._passing is None:
            self._passing = Passing(
                self.loop, self.clock, self.network, lambda: list(self.followed.values())
            )
        await self._passing.advance(seconds)

    def release(self, fault: Fault) -> None:
        """Let the commands that a fault holds go on."""
        self.network.release(fault)

    async def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Ask the cluster something as an administrator's client would."""
        administrator = self.loop.incarnate("administrator")
        asked: asyncio.Task[T] = self.loop.spawn(administrator, self._ask(question))
        return await asked

    async def _ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        transport = MemoryTransport(self.network)
        client = await connect(
            self.addresses, transport=transport, clock=self.clock, random=self._chance()
        )
        async with client:
            return await question(client)

    def _chance(self) -> Random:
        return Random(self._random.getrandbits(64))

    def _maker_of_broker(self, member: Member, settings: Mapping[str, Any]) -> MakeServer:
        membership = self._membership
        config = BrokerConfig(
            name=member.name,
            address=member.address,
            brokers=tuple(
                MemberAddress(name=one.name, address=one.address) for one in membership.brokers
            ),
            coordinators=tuple(
                MemberAddress(name=one.name, address=one.address, tcid=one.tcid)
                for one in membership.coordinators
            ),
            **membership.settings(),
            **settings,
        )

        def make(store: MemoryStore) -> Broker:
            transport = MemoryTransport(self.network)
            return Broker(config, store, transport, self.clock, self._chance(), self.loop.fail)

        return make

    def _maker_of_coordinator(
        self, member: CoordinatorMember, settings: Mapping[str, Any]
    ) -> MakeServer:
        membership = self._membership
        config = CoordinatorConfig(
            name=member.name,
            tcid=member.tcid,
            broker_addresses=tuple(one.address for one in membership.brokers),
            broker_names=tuple(one.name for one in membership.brokers),
            **membership.settings(),
            **{"two_phase_commit_enabled": True, **settings},
        )

        def make(store: MemoryStore) -> Coordinator:
            transport = MemoryTransport(self.network)
            return Coordinator(config, store, transport, self.clock, self._chance(), self.loop.fail)

        return make
