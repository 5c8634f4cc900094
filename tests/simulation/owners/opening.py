"""A shard that a member has open, by the real ShardServers: what it stands on, and who looks on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.links import SimulatedLink
from tests.simulation.owners.fenced_store import FencedStore
from tests.simulation.owners.seats import Seat

from magnetar.testing.lives import Incarnation, UnhandledException
from magnetar_cli.servers.server_process import World as ShardWorld
from magnetar_cli.servers.shard_servers import ShardServers
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOwnership
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import service_pb2 as pb
from magnetar_storage.store import StoreFailed

if TYPE_CHECKING:
    from tests.simulation.owners.cluster import OwnersCluster
    from tests.simulation.owners.members import MemberNode

# Until a store's manifest is read and written.
OPENING_SECONDS_MAX = 0.05


class Opening:
    """One ownership of a shard; magnetar_cluster.hosting.shard_opener.RunningShard once it is open.

    Attributes:
        server: the broker or the coordinator.
        store: the store that it has opened.
    """

    def __init__(
        self,
        cluster: OwnersCluster,
        seat: Seat,
        node: MemberNode,
        incarnation: Incarnation,
        ownership: ShardOwnership,
    ) -> None:
        self._cluster = cluster
        self.seat = seat
        self.node = node
        self.incarnation = incarnation
        self.ownership = ownership
        self.name = seat.name
        self.epoch = ownership.epoch
        self.place = ShardPlace(ownership.shard.number, ownership.epoch)
        # Made while it is opened.
        self.server: Any = None
        self.store: FencedStore | None = None
        self._running: RunningShard | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether nothing may be written any more."""
        return self.store is not None and self.store.is_abandoned

    # As a part of the network.

    @property
    def is_current(self) -> bool:
        """Whether the directory gives the shard to this ownership, now."""
        owner = self._cluster.directory.owner(self.seat.shard)
        return owner is not None and owner.epoch == self.epoch

    def speaks(self, link: SimulatedLink, frame: pb.Frame) -> None:
        """A frame leaves in the shard's name."""
        self._cluster.watch.speaks(self, link, frame)

    # What it stands on.

    def transport(self) -> Transport:
        """The way to other servers."""
        return self._cluster.environment.network.transport(self.incarnation, self)

    async def open_store(self) -> FencedStore:
        """Open the disk, which takes its time before and after the moment that fences others."""
        await asyncio.sleep(self._cluster.random.uniform(0.0, OPENING_SECONDS_MAX))
        await self.node.reach_store()
        self.store = FencedStore(
            self.seat.disk, self.seat.families, self.seat.reads, self.epoch, self.node.reach_store
        )
        self.store.on_write = partial(self._cluster.watch.writes, self)
        self.seat.lost_batch_count += self.store.lost_count
        await asyncio.sleep(self._cluster.random.uniform(0.0, OPENING_SECONDS_MAX))
        return self.store

    def make(self, world: ShardWorld) -> Any:
        """Make the broker or the coordinator."""
        self.server = self._cluster.make(self.seat, world, self)
        return self.server

    def on_fatal(self, error: BaseException, tell: Callable[[BaseException], None]) -> None:
        """The server cannot go on. Args: tell: ends the shard."""
        if not isinstance(error, StoreFailed):
            failure = UnhandledException(f"{self.name} gave up: {error!r}")
            failure.__cause__ = error
            self.seat.environment.loop.fail(failure)
        self.seat.environment.trace.event("fatal", f"{self.name} {self.epoch}: {error!r}")
        self.seat.fatal_count += 1
        tell(error)

    # Its life.

    async def start(self, shards: ShardServers) -> None:
        """Raises: what keeps the shard from being opened."""
        try:
            self._running = await shards.open(self.ownership)
        except BaseException:
            self._cluster.counts["abandoned"] += 1
            self._end()
            raise
        self.seat.opened(self)

    async def close(self) -> None:
        """End in order."""
        assert self._running is not None
        await self._running.close()
        self._cluster.counts["handed over"] += 1
        self._end()

    async def abandon(self) -> None:
        """End at once."""
        assert self._running is not None
        self._cluster.counts["abandoned"] += 1
        self._end()
        await self._running.abandon()

    def _end(self) -> None:
        self.node.openings.pop(self.place, None)
        self.seat.closed(self)
