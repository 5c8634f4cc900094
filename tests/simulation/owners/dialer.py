"""Connects to shards: finds the process behind an address, and waits at its door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from tests.simulation.links import Part, SimulatedLink

from magnetar.testing.lives import Incarnation
from magnetar_core.errors import MagnetarError
from magnetar_core.membership.shard_address import ShardAddress, ShardPlace, server_of
from magnetar_core.server.doors import Door
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2 as pb

if TYPE_CHECKING:
    from tests.simulation.owners.cluster import OwnersCluster
    from tests.simulation.owners.members import MemberNode

# Whoever hears nothing for so long gives up.
ACCEPT_SECONDS_MAX = 3.0
# How often somebody asks for a shard by its name and is sent to a former owner.
STALE_LIKELY = 0.1


class OwnersDialer:
    """tests.simulation.network.Dialer.

    An address is that of a member, alone or with a place; or a shard's name, which stands for its
    owner, and now and then for a former one.
    """

    def __init__(self, cluster: OwnersCluster) -> None:
        self._cluster = cluster
        self._random = cluster.environment.random("dialer")
        # What names stood for when they were used last.
        self._known: dict[str, ShardAddress] = {}

    def knows(self, address: str) -> bool:
        return (
            server_of(address) in self._cluster.members
            or "#" in address
            or self._cluster.seat_named(address) is not None
        )

    def resolve(self, name: str) -> str:
        """The address that a shard's name stands for."""
        seat = self._cluster.seat_named(name)
        if seat is None:
            return name
        owner = self._cluster.directory.owner(seat.shard)
        before = self._known.get(name)
        if before is not None and self._random.random() < STALE_LIKELY:
            return str(before)
        if owner is None:
            raise LinkClosed(f"nobody has {name}")
        place = ShardPlace(seat.shard.number, owner.epoch)
        found = self._known[name] = ShardAddress(owner.member, place)
        return str(found)

    async def dial(
        self,
        client: Incarnation,
        part: Part | None,
        address: str,
        service: str,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
    ) -> SimulatedLink:
        network = self._cluster.environment.network
        loop = self._cluster.environment.loop
        resolved = self.resolve(address)
        shard = ShardAddress.parse(resolved)
        server = shard.server if shard is not None else resolved
        if not server:
            raise LinkClosed(f"nobody has {address}")
        await asyncio.sleep(network.arrival(client.name, server) - loop.time())
        if network.is_cut(client.name, server):
            await asyncio.sleep(network.random.uniform(0.5, 2.0))
            raise LinkClosed(f"no answer from {server}")
        node = self._cluster.members.get(server)
        if node is None or not node.alive or self._cluster.service_of(node) != service:
            network.faults["connection refused"] += 1
            raise LinkClosed(f"nobody listens at {server}")
        assert node.incarnation is not None
        accepted: asyncio.Future[SimulatedLink] = loop.create_future()
        timer = loop.call_later(ACCEPT_SECONDS_MAX, _refuse, accepted, "no answer")
        loop.spawn(
            node.incarnation,
            self._let_in(
                node,
                node.incarnation,
                shard.place if shard is not None else None,
                accepted,
                lambda door, server_part, server_side: network.link(
                    client,
                    server_side,
                    door,
                    on_frame,
                    on_closed,
                    client_part=part,
                    server_part=server_part,
                ),
            ),
            name=f"{node.name} lets {client.name} in",
        )
        try:
            return await accepted
        except asyncio.CancelledError:
            if accepted.done() and not accepted.cancelled() and accepted.exception() is None:
                accepted.result().close()
            raise
        finally:
            timer.cancel()

    async def _let_in(
        self,
        node: MemberNode,
        incarnation: Incarnation,
        place: ShardPlace | None,
        accepted: asyncio.Future[SimulatedLink],
        link: Callable[[Door, Part | None, Incarnation], SimulatedLink],
    ) -> None:
        loop = self._cluster.environment.loop
        try:
            door = await node.doors.enter(place)
            if accepted.done():
                return
            made = link(door, self._part_behind(node, door, place), incarnation)
        except MagnetarError as error:
            loop.call_later(0.0005, _refuse, accepted, str(error), context=Context())
            return
        door.come(made)
        made.on_left = lambda: door.leave(made)
        accepted.set_result(made)

    def _part_behind(self, node: MemberNode, door: Door, place: ShardPlace | None) -> Part | None:
        behind = node.doors.places.get(door.commands) if door.commands is not None else None
        opening = node.openings.get(behind) if behind is not None else None
        if opening is not None:
            self._cluster.watch.entered(opening, place)
        return opening


def _refuse(accepted: asyncio.Future[SimulatedLink], why: str) -> None:
    if not accepted.done():
        accepted.set_exception(LinkClosed(why))
        # A client that has died meanwhile does not look.
        accepted.exception()
