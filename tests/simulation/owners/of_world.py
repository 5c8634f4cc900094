"""The cluster with owners of a world: its shards take the places of the world's servers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.owners.cluster import OwnersCluster
from tests.simulation.owners.members import MemberNode
from tests.simulation.owners.opening import Opening
from tests.simulation.owners.plan import OwnersPlan
from tests.simulation.owners.seats import Seat
from tests.simulation.servers import (
    broker_config,
    coordinator_config,
    coordinator_names,
    make_broker,
    make_coordinator,
)

from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.member_commands import MemberCommands
from magnetar_cli.servers.server_process import World as ShardWorld
from magnetar_cluster.directory.view import BROKER, COORDINATOR, ShardName
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.server.commands import CommandServer, Handler

if TYPE_CHECKING:
    from tests.simulation.world import World


def owners_of(world: World, plan: OwnersPlan) -> OwnersCluster:
    """Make the cluster; nobody has anything yet."""
    seats = [
        Seat(world.environment, name, ShardName(kind, number), make.families())  # type: ignore[attr-defined]
        for kind, names, make in (
            (BROKER, world.broker_names, make_broker),
            (COORDINATOR, coordinator_names(world.script.coordinator_count), make_coordinator),
        )
        for number, name in enumerate(names)
    ]
    makes = {BROKER: partial(_make_broker, world), COORDINATOR: partial(_make_coordinator, world)}
    own_commands = partial(_own_commands, world)
    return OwnersCluster(world.environment, plan, world.history, seats, makes, own_commands)


def _names(world: World, kind: str) -> list[str]:
    """Names of the cluster's own: addresses are found by them."""
    count = len(world.broker_names) if kind == BROKER else world.script.coordinator_count
    return [str(ShardName(kind, number)) for number in range(count)]


def _broker_config(world: World, name: str) -> BrokerConfig:
    return broker_config(
        name, _names(world, BROKER), _names(world, COORDINATOR), world.script.settings["broker"]
    )


def _own_commands(
    world: World, node: MemberNode, membership: Mapping[str, Handler]
) -> CommandServer:
    config = _broker_config(world, str(ShardName(BROKER, 0)))
    own = ClusterResponses(config, OwnersBook(node.view), node.name)
    return MemberCommands(own, membership)


def _make_broker(world: World, seat: Seat, made: ShardWorld, opening: Opening) -> Any:
    from magnetar_broker.broker import Broker

    return Broker(
        _broker_config(world, str(seat.shard)),
        made.store,
        made.transport,
        made.clock,
        world.environment.random(f"{seat.name}/{opening.epoch}"),
        lambda error: opening.on_fatal(error, made.on_fatal),
        addresses=OwnersBook(opening.node.view),
        history=world.protocol.history_of(BROKER, seat.shard.number, opening.epoch),
    )


def _make_coordinator(world: World, seat: Seat, made: ShardWorld, opening: Opening) -> Any:
    from magnetar_coordinator.coordinator import Coordinator

    config = coordinator_config(
        str(seat.shard),
        seat.shard.number,
        _names(world, BROKER),
        world.script.settings["coordinator"],
    )
    return Coordinator(
        config,
        made.store,
        made.transport,
        made.clock,
        world.environment.random(f"{seat.name}/{opening.epoch}"),
        lambda error: opening.on_fatal(error, made.on_fatal),
        history=world.protocol.history_of(COORDINATOR, seat.shard.number, opening.epoch),
    )
