"""Members, shards and the directory of a simulated cluster, and what may go wrong with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.configs import host_settings
from tests.simulation.nodes import Environment
from tests.simulation.owners.dialer import OwnersDialer
from tests.simulation.owners.members import MemberNode
from tests.simulation.owners.opening import Opening
from tests.simulation.owners.plan import OwnersPlan
from tests.simulation.owners.seats import Seat
from tests.simulation.owners.simulated_directory import SimulatedDirectory
from tests.simulation.owners.watch import OwnersWatch
from tests.simulation.raw import BROKER, COORDINATOR

from magnetar.testing.lives import SimulationFailure
from magnetar_cli.servers.server_process import World as ShardWorld
from magnetar_cluster.directory import view as cluster_view
from magnetar_cluster.directory.cluster_directory_state import Drain, Pin
from magnetar_cluster.directory.view import Format, MemberName, ShardName, ShardOwner
from magnetar_cluster.directory.wish import wishes
from magnetar_core.membership.shard_address import ShardAddress
from magnetar_core.server.commands import CommandServer, Handler

if TYPE_CHECKING:
    from tests.simulation.history import History

# Until every shard has an owner, once nothing is wrong any more.
SETTLED_SECONDS_MAX = 12.0
# Makes the server of a shard on its store.
Make = Callable[[Seat, ShardWorld, Opening], Any]
SERVICES = {cluster_view.BROKER: BROKER, cluster_view.COORDINATOR: COORDINATOR}
MEMBER_PREFIX = {cluster_view.BROKER: "keeper", cluster_view.COORDINATOR: "decider"}


class OwnersCluster:
    """Shards, the processes that may have them, and the directory that says who does.

    Args:
        seats: all shards, brokers' and coordinators'.
        makes: how the server of each kind is made.
    """

    def __init__(
        self,
        environment: Environment,
        plan: OwnersPlan,
        history: History,
        seats: list[Seat],
        makes: Mapping[str, Make],
        own_commands: Callable[[MemberNode, Mapping[str, Handler]], CommandServer],
    ) -> None:
        self.environment = environment
        self.plan = plan
        self.random = environment.random("owners")
        self.seats = {one.shard: one for one in seats}
        self._makes = makes
        # What a member without a shard answers.
        self.own_commands = own_commands
        kinds = Counter(one.shard.kind for one in seats)
        self.format = Format(
            broker_shards=kinds[cluster_view.BROKER],
            coordinator_shards=kinds[cluster_view.COORDINATOR],
        )
        self.settings = host_settings(
            lease_duration_ms=1_000,
            settling_ms=plan.settling_ms,
            handover_ms_max=2_000,
            opening_pause_ms_min=20,
            opening_pause_ms_max=300,
            directory_pause_ms_min=10,
            directory_pause_ms_max=200,
        )
        self.counts: Counter[str] = Counter()
        self.watch = OwnersWatch(history.violation)
        self.directory = SimulatedDirectory(
            environment.loop, environment.random("directory"), environment.trace
        )
        self.directory.loss = plan.loss
        self.directory.lag_seconds_max = plan.lag_seconds_max
        self.directory.on_claim = self._claimed
        self.directory.on_end = self._ended
        for seat in seats:
            seat.disk.on_durable = lambda store, shard=seat.shard: self.watch.wrote(shard, store)  # type: ignore[misc]
        self.members: dict[str, MemberNode] = {}
        for _ in range(plan.broker_members):
            self.add(cluster_view.BROKER)
        for _ in range(plan.coordinator_members):
            self.add(cluster_view.COORDINATOR)
        # Told of servers that clients cannot expect anything of, and for how long.
        self.on_trouble: Callable[[list[str], float], None] = lambda names, seconds: None
        self.dialer = OwnersDialer(self)

    def add(self, kind: str) -> MemberNode:
        """A process that has not been started yet."""
        number = 1 + sum(member.kind == kind for member in self.members.values())
        name = f"{MEMBER_PREFIX[kind]}-{number}"
        node = self.members[name] = MemberNode(self, name, kind)
        return node

    def start(self) -> None:
        for node in self.members.values():
            node.start()

    def broker_members(self) -> list[str]:
        """Where an administrator tells clients to begin."""
        return [
            member.name
            for member in self.members.values()
            if member.kind == cluster_view.BROKER and not member.gone
        ]

    # Who has what.

    def seat_of(self, shard: ShardName) -> Seat:
        return self.seats[shard]

    def seat_named(self, name: str) -> Seat | None:
        """By the name that the simulation knows it by, or by the cluster's own."""
        for shard, seat in self.seats.items():
            if name in (seat.name, str(shard)):
                return seat
        return None

    def server_at(self, address: str) -> str:
        """The name of the broker that an address names, whoever has it."""
        shard = ShardAddress.parse(address)
        if shard is not None:
            return self.seats[ShardName(cluster_view.BROKER, shard.place.shard)].name
        seat = self.seat_named(address)
        return address if seat is None else seat.name

    def service_of(self, node: MemberNode) -> str:
        return SERVICES[node.kind]

    def owner_node(self, seat: Seat) -> MemberNode | None:
        owner = self.directory.owner(seat.shard)
        return self.members.get(owner.member) if owner is not None else None

    def machine_of(self, name: str) -> str:
        """The process that stands behind a name at the moment."""
        seat = self.seat_named(name)
        node = self.owner_node(seat) if seat is not None else None
        return name if node is None else node.name

    def seats_at(self, node: MemberNode) -> list[str]:
        return [
            seat.name
            for shard, seat in self.seats.items()
            if (owner := self.directory.owner(shard)) is not None and owner.member == node.name
        ]

    def _claimed(self, shard: ShardName, owner: ShardOwner) -> None:
        self.counts["claims"] += 1
        seat = self.seats[shard]
        # Whatever the one before had in memory is gone.
        seat.on_crash()
        self.on_trouble([seat.name], float("inf"))

    def _ended(self, shard: ShardName, owner: ShardOwner) -> None:
        self.on_trouble([self.seats[shard].name], float("inf"))

    # What openings need.

    def make(self, seat: Seat, world: ShardWorld, opening: Opening) -> Any:
        return self._makes[seat.shard.kind](seat, world, opening)

    # Faults.

    def dies(self, node: MemberNode) -> None:
        self.counts["members killed"] += 1
        self.on_trouble(self.seats_at(node), float("inf"))

    def others_alive(self, node: MemberNode) -> list[MemberNode]:
        """Members of its kind who would go on without it."""
        return [
            member
            for member in self.members.values()
            if member is not node and member.kind == node.kind and member.alive and not member.gone
        ]

    def freeze(self, node: MemberNode, seconds: float, *, asking: bool = False) -> None:
        """Args: asking: as soon as it has asked the directory something."""
        self.counts["members frozen"] += 1
        self.on_trouble(self.seats_at(node), seconds + 1.5)
        if asking:
            self.directory.when_asked[node.name] = partial(node.freeze, seconds)
        else:
            node.freeze(seconds)

    def cut(self, node: MemberNode, direction: str, seconds: float) -> None:
        self.on_trouble(self.seats_at(node), seconds + 1.0)
        self.directory.cut(node.name, direction, seconds)

    def answer_late(self, node: MemberNode, seconds: float) -> None:
        self.on_trouble(self.seats_at(node), seconds + 2.0)
        self.directory.answer_late(node.name, seconds)

    def directory_away(self, seconds: float) -> None:
        self.on_trouble([seat.name for seat in self.seats.values()], seconds + 1.5)
        self.directory.go_away(seconds)

    def drain(self, node: MemberNode, *, draining: bool) -> None:
        self.counts["drains"] += draining
        self.directory.apply(Drain(MemberName(node.kind, node.name), draining))

    def pin(self, shard: ShardName, node: MemberNode | None) -> None:
        self.counts["pins"] += node is not None
        self.directory.apply(Pin(shard, node.name if node is not None else ""))

    def end_faults(self) -> None:
        """Nothing goes wrong any more, and of each kind somebody is up."""
        self.directory.heal()
        for node in self.members.values():
            node.thaw()
            if not node.alive and (not node.gone or not self.others_alive(node)):
                node.start()
        for name in self.directory.view.draining:
            self.directory.apply(Drain(name, False))
        for shard in self.directory.view.pins:
            self.pin(shard, None)

    async def settled(self, since: str) -> None:
        """Wait until each shard is open where it shall be. Raises: that takes too long."""
        loop = self.environment.loop
        deadline = loop.time() + SETTLED_SECONDS_MAX
        while lacking := self.lacking():
            if loop.time() > deadline:
                raise SimulationFailure(
                    f"{', '.join(lacking)} not where it shall be, {SETTLED_SECONDS_MAX} s after"
                    f" {since}: {self.directory.view}"
                )
            await asyncio.sleep(0.05)

    def lacking(self) -> list[str]:
        """Shards that nobody serves, or somebody who shall not, and members about to come or go."""
        view = self.directory.view
        wished = wishes(view, self.format)
        restless = [
            node.name
            for node in self.members.values()
            if node.alive
            and (node.is_stopping or MemberName(node.kind, node.name) not in view.members)
        ]
        return restless + [
            seat.name
            for shard, seat in self.seats.items()
            if seat.opening is None or seat.opening.node.name != wished.get(shard)
        ]
