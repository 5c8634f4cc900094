"""A member: a process that has some of the shards, in the hands of a real host."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

from tests.simulation.nodes import Node
from tests.simulation.owners.fenced_store import FencedStore
from tests.simulation.owners.opening import Opening
from tests.simulation.owners.simulated_directory import Way

from magnetar.testing.lives import Incarnation
from magnetar_cli.servers.membership import Membership
from magnetar_cli.servers.membership_commands import membership_handlers
from magnetar_cli.servers.open_store import Rows
from magnetar_cli.servers.owners_push import OwnersPush
from magnetar_cli.servers.server_process import World
from magnetar_cli.servers.shard_metrics import ShardMetrics
from magnetar_cli.servers.shard_servers import ShardKind, ShardServers
from magnetar_cluster.background import Background
from magnetar_cluster.directory.memory_directory import MemoryDirectory
from magnetar_cluster.directory.view import BROKER, Member, MemberName, ShardName, View
from magnetar_cluster.hosting.host import Host
from magnetar_cluster.hosting.shard_opener import ShardOwnership
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.server.commands import CommandServer
from magnetar_core.server.doors import Doors
from magnetar_core.transport.transport import Transport

if TYPE_CHECKING:
    from tests.simulation.owners.cluster import OwnersCluster

# By how much clocks of members differ from that of the directory.
SPEED_MIN, SPEED_MAX = 0.9, 1.1


class MemberNode(Node):
    """
    Attributes:
        openings: the shards that it has open, or is opening.
    """

    def __init__(self, cluster: OwnersCluster, name: str, kind: str) -> None:
        super().__init__(cluster.environment, name)
        self._cluster = cluster
        self.kind = kind
        self.speed = self.random.uniform(SPEED_MIN, SPEED_MAX)
        self.doors = _Doors()
        self.host: Host | None = None
        self.openings: dict[ShardPlace, Opening] = {}
        self._store_away_until = 0.0
        self._frozen_until = 0.0
        # It does not come back.
        self.gone = False
        # It was asked to end; the directory may not know yet.
        self.is_stopping = False

    def now_ms(self) -> float:
        """Its own clock: it counts sleep, and goes at its own speed."""
        loop = self.environment.loop
        return self.clock.monotonic_offset_ms + loop.time() * 1000 * self.speed

    def start(self) -> None:
        self.gone = self.is_stopping = False
        incarnation = self.begin_life()
        self.doors, self.openings, self.host = _Doors(), {}, None
        loop = self.environment.loop
        loop.spawn(incarnation, self._live(incarnation), name=f"{self.name} main")

    async def _live(self, incarnation: Incarnation) -> None:
        kind = ShardKind(rows=_no_rows, build=self._build)
        self._shards = ShardServers(
            kind,
            self.doors,
            ShardMetrics(),
            self.clock,
            self.name,
            surroundings=_Surroundings(self.openings),
        )
        directory = MemoryDirectory(Way(self._cluster.directory, self.name))
        name = MemberName(self.kind, self.name)
        self.host = Host(
            directory,
            _Opener(self._cluster, self, incarnation, self._shards),
            self._cluster.settings,
            cluster_format=self._cluster.format,
            name=name,
            member=Member(address=self.name),
            now_ms=self.now_ms,
            random=self.environment.random(f"{self.name}/{self.life}"),
        )
        self.host.on_speech.append(self._on_speech)
        self._owners_push = OwnersPush(self._push)
        self.host.on_view.append(self._on_view)
        if self.kind == BROKER:
            membership = membership_handlers(
                Membership(self.host, directory, self._cluster.format, name), Background().start
            )
            self._shards.take_membership(membership)
            self.doors.open_own(self._cluster.own_commands(self, membership))
        await self.host.start()

    def _on_speech(self, may_speak: bool) -> None:
        if not may_speak:
            self.doors.mute()

    def _build(self, shard: ShardName, world: World) -> Any:
        store = world.store
        assert isinstance(store, FencedStore)
        return self.openings[ShardPlace(shard.number, store.epoch)].make(world)

    def view(self) -> View:
        """What it saw last of the directory."""
        return self.host.view if self.host is not None else View()

    def _on_view(self, view: View) -> None:
        self._shards.owners_changed(view)
        self._owners_push.owners_changed(view)

    def _push(self, body: Any) -> None:
        for link in self.environment.network.links():
            if link.server is self.incarnation:
                link.session.push(body)

    # Faults.

    @property
    def frozen(self) -> bool:
        return self.incarnation is not None and self.incarnation.held is not None

    def kill(self) -> None:
        """As after kill -9."""
        if not self.alive:
            return
        self._cluster.dies(self)
        self.end_life()
        for opening in list(self.openings.values()):
            opening.seat.closed(opening)
        self.openings.clear()

    def freeze(self, seconds: float) -> None:
        """Nothing of it runs for so long; what comes meanwhile waits."""
        if not self.alive or self.environment.network.quiet:
            return
        assert self.incarnation is not None
        loop = self.environment.loop
        self.environment.trace.event("fault", f"{self.name} stands still for {seconds:.2f} s")
        self._frozen_until = max(self._frozen_until, loop.time() + seconds)
        loop.freeze(self.incarnation)
        loop.call_later(seconds, self._wake, self.incarnation, context=Context())

    def _wake(self, incarnation: Incarnation) -> None:
        # Rounded, as times of timers are.
        if incarnation.alive and self.environment.loop.time() >= self._frozen_until - 1e-6:
            self.environment.trace.event("awake", self.name)
            self.environment.loop.thaw(incarnation)

    def thaw(self) -> None:
        """It goes on, however long it was to stand still."""
        self._frozen_until = 0.0
        if self.frozen:
            assert self.incarnation is not None
            self._wake(self.incarnation)

    def lose_store(self, seconds: float) -> None:
        """What it writes to stores arrives later."""
        self._store_away_until = self.environment.loop.time() + seconds

    async def reach_store(self) -> None:
        """Wait until a store can be reached from here."""
        wait_s = self._store_away_until - self.environment.loop.time()
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)

    def stop(self) -> None:
        """As after SIGTERM: it hands over what it has, and ends."""
        if self.alive and self.host is not None:
            assert self.incarnation is not None
            self.is_stopping = True
            self.environment.loop.spawn(
                self.incarnation, self._stop(self.host), name=f"{self.name} stop"
            )

    async def _stop(self, host: Host) -> None:
        await host.drain()
        await host.close()
        self._cluster.counts["stopped in order"] += 1
        self.environment.loop.call_soon(self._stopped, context=Context())

    def _stopped(self) -> None:
        self.kill()
        if self.environment.network.quiet and not self.alive:
            # Nobody else would start it again.
            self.start()


class _Doors(Doors):
    """Doors that know whose commands are behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[CommandServer, ShardPlace] = {}

    def open(self, place: ShardPlace, commands: CommandServer) -> None:
        super().open(place, commands)
        self.places[commands] = place


class _Surroundings:
    """magnetar_cli.servers.shard_servers.Surroundings."""

    def __init__(self, openings: dict[ShardPlace, Opening]) -> None:
        self._openings = openings

    def transport(self, ownership: ShardOwnership) -> Transport:
        return self._of(ownership).transport()

    async def open_store(
        self, ownership: ShardOwnership, registry: object, on_end: object
    ) -> FencedStore:
        return await self._of(ownership).open_store()

    def _of(self, ownership: ShardOwnership) -> Opening:
        return self._openings[ShardPlace(ownership.shard.number, ownership.epoch)]


def _no_rows(shard: ShardName) -> Rows:
    raise NotImplementedError("simulated shards lie on disks of their own")


class _Opener:
    """magnetar_cluster.hosting.shard_opener.ShardOpener."""

    def __init__(
        self,
        cluster: OwnersCluster,
        node: MemberNode,
        incarnation: Incarnation,
        shards: ShardServers,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._incarnation = incarnation
        self._shards = shards

    async def open(self, ownership: ShardOwnership) -> Opening:
        seat = self._cluster.seat_of(ownership.shard)
        opening = Opening(self._cluster, seat, self._node, self._incarnation, ownership)
        self._node.openings[opening.place] = opening
        await opening.start(self._shards)
        return opening
