"""Shards that this process has for a while: each a broker or a coordinator on a store of its own.

Source: docs/design/0009-owners.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from magnetar_cli.servers.interruption import Interrupted, unless
from magnetar_cli.servers.open_store import Rows, open_object_store
from magnetar_cli.servers.server_process import Component, World
from magnetar_cli.servers.shard_metrics import ShardMetrics
from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.directory.cluster_directory import ClusterDirectory
from magnetar_cluster.directory.shard_marks import ShardMarkPlace
from magnetar_cluster.directory.view import ShardName, View
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOwnership
from magnetar_core.clock import Clock
from magnetar_core.history.events import Server
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.recording.history_file import HistoryFile, open_history
from magnetar_core.recording.metrics import HistoryMetrics
from magnetar_core.security.link_security import PLAIN, LinkSecurity
from magnetar_core.server.commands import Handler
from magnetar_core.server.doors import Doors
from magnetar_core.server.leased import LeasedCommands, LeasedTransport
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.transport import Transport
from magnetar_storage.object_store.cluster_stamp import ClusterStamp, take_address
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb.options import StoreCache, new_cache
from magnetar_storage.store import Store, StoreFailed, StoreFenced

Result = TypeVar("Result")

log = logging.getLogger("magnetar_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKind:
    """Makes the servers of one kind of shards.

    Attributes:
        rows: describes the store of a shard.
        build: makes its broker or coordinator.
    """

    rows: Callable[[ShardName], Rows]
    build: Callable[[ShardName, World], Component]


class ShardStore(Store, Protocol):
    """Store of a shard, which another member may have by now."""

    async def abandon(self) -> None:
        """Release the store without another write."""
        ...


OnOpen = Callable[[Component, Callable[[], bool]], Callable[[], None]]


class Surroundings(Protocol):
    """Surroundings that all shards of a process share."""

    def transport(self, ownership: ShardOwnership) -> Transport:
        """Return a way to other servers, for one ownership."""
        ...

    async def open_store(
        self,
        ownership: ShardOwnership,
        registry: CollectorRegistry,
        on_end: Callable[[StoreFailed], object],
    ) -> ShardStore:
        """Open a shard's store, which fences the server that had it open.

        Args:
            registry: gets the metrics of the store.
            on_end: called when the store has ended by itself.
        Raises:
            Exception: it cannot be opened.
        """
        ...


class ObjectStores:
    """Surroundings of a real process: an object store, and gRPC.

    Args:
        cluster: the cluster of the process; None: it is not compared with that of the address.
        directory: keeps how far stores are durable; None: that is not kept.
    """

    def __init__(
        self,
        rows: Callable[[ShardName], Rows],
        links: LinkSecurity,
        cluster: ClusterStamp | None = None,
        directory: ClusterDirectory | None = None,
    ) -> None:
        self._rows = rows
        self._links = links
        self._cluster = cluster
        self._directory = directory
        # Memory that all stores of this process share.
        self._cache: Any = None

    def transport(self, ownership: ShardOwnership) -> Transport:
        """Return a way to other servers, for one ownership."""
        return GrpcTransport(self._links)

    async def open_store(
        self,
        ownership: ShardOwnership,
        registry: CollectorRegistry,
        on_end: Callable[[StoreFailed], object],
    ) -> ShardStore:
        """Open a shard's store, which fences the server that had it open."""
        rows = self._rows(ownership.shard)
        if self._cache is None:
            self._cache = new_cache(rows.config)
        if self._cluster is not None:
            await take_address(ObjectStoreUrl.parse(rows.config.store), self._cluster)
        mark_place = None
        if self._directory is not None:
            mark_place = ShardMarkPlace(self._directory, ownership.shard, ownership.epoch)
        return await open_object_store(
            rows,
            registry,
            on_end,
            mark_place,
            # The lease of an owner before has ended, and with it what that owner says.
            owner_is_silent=True,
            cache=StoreCache(self._cache, ownership.epoch),
        )


class ShardServers:
    """Opens the shards of this process; implements ShardOpener.

    Args:
        address: of this process.
        links: how its links to other servers are secured.
        surroundings: other ones than an object store, of which nothing is known, and gRPC.
        traces: makes spans; None: there are none.
        history: where shards write the history of the protocol; None: nowhere.
        on_open: is told of a shard that is open, and whether it may speak; the returned function
            is called when it no longer serves.
    """

    def __init__(
        self,
        kind: ShardKind,
        doors: Doors,
        metrics: ShardMetrics,
        clock: Clock,
        address: str,
        links: LinkSecurity = PLAIN,
        *,
        surroundings: Surroundings | None = None,
        traces: ServerTraces | None = None,
        history: HistoryConfig | None = None,
        on_open: OnOpen | None = None,
    ) -> None:
        self.on_open = on_open
        self.traces = traces
        self.history = history or HistoryConfig()
        self.kind = kind
        self.doors = doors
        self.metrics = metrics
        self.clock = clock
        self.address = address
        self.surroundings = surroundings or ObjectStores(kind.rows, links)
        self.membership: Mapping[str, Handler] = MEMBERSHIP_REFUSALS
        self.view = View()
        # A dict, since a set's order would differ from run to run.
        self._servers: dict[_ShardServer, None] = {}

    def take_membership(self, handlers: Mapping[str, Handler]) -> None:
        """Let shards answer commands about members; called before any shard is opened."""
        self.membership = handlers

    def owners_changed(self, view: View) -> None:
        """Take a later view, and end links to former owners."""
        self.view = view
        for server in list(self._servers):
            server.owners_changed(view)

    async def open(self, ownership: ShardOwnership) -> RunningShard:
        """Open a shard's store, recover it, and let conversations in."""
        server = _ShardServer(self, ownership)
        self._servers[server] = None
        try:
            await server.open()
        except BaseException:
            await server.abandon()
            raise
        return server

    def closed(self, server: _ShardServer) -> None:
        """Forget a server."""
        self._servers.pop(server, None)


class _ShardServer:
    """A shard that this process has, or opens."""

    def __init__(self, servers: ShardServers, ownership: ShardOwnership) -> None:
        self._servers = servers
        self._ownership = ownership
        self._place = ShardPlace(ownership.shard.number, ownership.epoch)
        self._registry = CollectorRegistry()
        self._store: ShardStore | None = None
        self._component: Component | None = None
        self._history_file: HistoryFile | None = None
        self._is_open = self._closing = False
        self._no_longer_serve: Callable[[], None] = _nothing
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        links = servers.surroundings.transport(ownership)
        self.transport = ClusterTransport(
            LeasedTransport(links, self._may_speak), lambda: servers.view
        )

    async def open(self) -> None:
        """Open the store, recover, and let conversations in.

        Raises:
            Exception: it cannot be opened. abandon() follows.
        """
        servers, shard = self._servers, self._ownership.shard
        servers.doors.announce(self._place)
        began_ms = servers.clock.monotonic_ms()
        self._store = store = await self._unless_ended(
            servers.surroundings.open_store(self._ownership, self._registry, self._end)
        )
        opened_ms = servers.clock.monotonic_ms()
        self._history_file = open_history(
            servers.history,
            Server(shard.kind, shard.number),
            str(shard),
            servers.clock.wall_ms,
            HistoryMetrics(self._registry),
            life_number=self._ownership.epoch,
        )
        self._component = component = servers.kind.build(
            shard,
            World(
                address=servers.address,
                store=store,
                transport=self.transport,
                clock=servers.clock,
                random=Random(),
                registry=self._registry,
                on_fatal=self._end,
                traces=servers.traces,
                history=None if self._history_file is None else self._history_file.history,
                membership=servers.membership,
            ),
        )
        await self._unless_ended(component.start())
        if self._failure.done():
            # It may have ended just when it was ready.
            raise self._failure.result()
        servers.metrics.add(shard.number, self._registry)
        servers.doors.open(self._place, LeasedCommands(component.server, self._may_speak))
        if servers.on_open is not None:
            self._no_longer_serve = servers.on_open(component, self._may_speak)
        self._is_open = True
        log.info(
            "%s is open in epoch %d: its store after %.0f ms, recovered after %.0f ms",
            shard,
            self._ownership.epoch,
            opened_ms - began_ms,
            servers.clock.monotonic_ms() - began_ms,
        )

    def owners_changed(self, view: View) -> None:
        """Take a later view. An opening ends when another member has the shard.

        It may wait for something that comes too late, such as an answer that is no longer needed.
        """
        self.transport.owners_changed(view)
        epoch, owner = self._ownership.epoch, view.shard_owners.get(self._ownership.shard)
        # A view from before the claim does not have this owner.
        if view.revision >= epoch and (owner is None or owner.epoch != epoch):
            self._lose()

    async def close(self) -> None:
        """End in order: answers leave, everything becomes durable, the store is closed."""
        self._closing = True
        assert self._component is not None
        assert self._store is not None
        self._no_longer_serve()
        await self._servers.doors.shut(self._place, gracefully=True)
        try:
            await self._component.close()
        except StoreFailed as error:
            if not isinstance(error, StoreFenced) and not isinstance(error.__cause__, StoreFenced):
                raise
            # The member that has the shard now has everything that was acknowledged.
            log.info("%s has another owner already: %s", self._ownership.shard, error)
        await self.transport.close()
        if self._history_file is not None:
            self._history_file.close()
        await self._store.close()
        self._forget()

    async def abandon(self) -> None:
        """End at once, and write nothing. Repeating it is harmless."""
        self._closing = True
        if not self._failure.done():
            self._failure.cancel()
        self._no_longer_serve()
        # In this order: stop answering, then stop asking, then stop writing.
        await self._servers.doors.shut(self._place, gracefully=False)
        await self.transport.close()
        if self._component is not None:
            self._component.abandon()
        if self._history_file is not None:
            self._history_file.abandon()
        if self._store is not None:
            await self._store.abandon()
        self._forget()

    def _may_speak(self) -> bool:
        return not self._failure.done() and self._ownership.may_speak()

    def _end(self, error: BaseException) -> None:
        """Stop answering: memory is ahead of the durable rows, or another member has the shard."""
        if self._failure.done():
            return
        self._failure.set_result(error)
        self._servers.doors.mute(self._place)
        self._no_longer_serve()
        if self._is_open and not self._closing:
            self._ownership.on_end(error)

    def _lose(self) -> None:
        if not self._is_open and not self._failure.done():
            shard = self._ownership.shard
            self._failure.set_result(StoreFenced(f"another member may have {shard} by now"))

    async def _unless_ended(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work, and return what it returns.

        Raises:
            BaseException: the work failed, or the shard ended meanwhile.
        """
        try:
            return await unless(work, self._failure)
        except Interrupted:
            raise self._failure.result() from None

    def _forget(self) -> None:
        self._servers.metrics.remove(self._ownership.shard.number, self._registry)
        self._servers.closed(self)


def _nothing() -> None:
    return
