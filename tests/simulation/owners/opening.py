"""A shard that a member has open: the real server on the shard's disk, behind a door."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.links import SimulatedLink
from tests.simulation.owners.fenced_store import FencedStore
from tests.simulation.owners.seats import Seat
from tests.virtual_loop import Incarnation, UnhandledException

from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.shard_opener import Ownership
from magnetar_core.leased import LeasedCommands, LeasedTransport
from magnetar_core.shard_address import ShardPlace
from magnetar_core.wire import service_pb2 as pb
from magnetar_storage.store import StoreFailed, StoreFenced

if TYPE_CHECKING:
    from tests.simulation.owners.cluster import OwnersCluster
    from tests.simulation.owners.members import MemberNode

# Until a store's manifest is read and written.
OPENING_SECONDS_MAX = 0.05


class Opening:
    """One ownership of a shard; magnetar_cluster.shard_opener.RunningShard once it is open.

    Attributes:
        server: the broker or the coordinator.
    """

    def __init__(
        self,
        cluster: OwnersCluster,
        seat: Seat,
        node: MemberNode,
        incarnation: Incarnation,
        ownership: Ownership,
    ) -> None:
        self._cluster = cluster
        self.seat = seat
        self.node = node
        self.incarnation = incarnation
        self.ownership = ownership
        self.name = seat.name
        self.epoch = ownership.epoch
        self.place = ShardPlace(ownership.shard.number, ownership.epoch)
        self.server: Any = None
        self.commands: LeasedCommands | None = None
        self.transport: ClusterTransport | None = None
        self._store: FencedStore | None = None
        self.is_abandoned = False
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    # As a part of the network.

    @property
    def is_current(self) -> bool:
        """Whether the directory gives the shard to this ownership, now."""
        owner = self._cluster.directory.owner(self.seat.shard)
        return owner is not None and owner.epoch == self.epoch

    def speaks(self, link: SimulatedLink, frame: pb.Frame) -> None:
        """A frame leaves in the shard's name."""
        self._cluster.watch.speaks(self, link, frame)

    # Its life.

    async def start(self) -> None:
        """Raises: what keeps the shard from being opened."""
        doors = self.node.doors
        doors.announce(self.place)
        await asyncio.sleep(self._cluster.random.uniform(0.0, OPENING_SECONDS_MAX))
        await self.node.reach_store()
        self._store = FencedStore(
            self.seat.disk, self.seat.families, self.seat.reads, self.epoch, self.node.reach_store
        )
        self._store.on_write = partial(self._cluster.watch.writes, self)
        self.seat.lost_batch_count += self._store.lost_count
        await asyncio.sleep(self._cluster.random.uniform(0.0, OPENING_SECONDS_MAX))
        self.server = self._cluster.make(self.seat, self._store, self._transport(), self)
        await self._unless_failed(self.server.start())
        if self._failure.done():
            raise self._failure.result()
        self.commands = LeasedCommands(self.server.server, self._may_speak)
        doors.open(self.place, self.commands)
        self.seat.opened(self)

    def _may_speak(self) -> bool:
        # Memory is ahead of what is durable when the store has failed.
        return not self._failure.done() and self.ownership.may_speak()

    async def _unless_failed(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises: what the work raises, or what the server says meanwhile: it cannot go on."""
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait((working, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise self._failure.result()
            await working
        finally:
            working.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await working

    def _transport(self) -> ClusterTransport:
        """The way to other shards, by their names."""
        links = self._cluster.environment.network.transport(self.incarnation, self)
        leased = LeasedTransport(links, self._may_speak)
        self.transport = ClusterTransport(leased, self.node.view)
        return self.transport

    def on_fatal(self, error: BaseException) -> None:
        """The server cannot go on."""
        if not isinstance(error, StoreFailed):
            failure = UnhandledException(f"{self.name} gave up: {error!r}")
            failure.__cause__ = error
            self.seat.environment.loop.fail(failure)
        self.seat.environment.trace.event("fatal", f"{self.name} {self.epoch}: {error!r}")
        self.seat.fatal_count += 1
        if not self._failure.done():
            self._failure.set_result(error)
            if self.seat.opening is self:
                self.ownership.on_end(error)

    async def close(self) -> None:
        """End in order."""
        await self.node.doors.shut(self.place, gracefully=True)
        try:
            await self.server.close()
        except StoreFailed as error:
            if not isinstance(error.__cause__, StoreFenced):
                raise
            # Whoever has the shard now has everything that was acknowledged.
        assert self._store is not None
        assert self.transport is not None
        await self.transport.close()
        await self._store.close()
        self._cluster.counts["handed over"] += 1
        self._end()

    async def abandon(self) -> None:
        """End at once."""
        self._cluster.counts["abandoned"] += 1
        self._end()
        if not self._failure.done():
            self._failure.cancel()
        await self.node.doors.shut(self.place, gracefully=False)
        if self.transport is not None:
            await self.transport.close()
        if self.server is not None:
            self.server.abandon()
        self.is_abandoned = True
        if self._store is not None:
            await self._store.close()

    def _end(self) -> None:
        self.node.openings.pop(self.place, None)
        self.seat.closed(self)
