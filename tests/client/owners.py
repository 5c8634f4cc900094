"""A cluster in memory whose shards change their owner; servers that freeze, and views that lag."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.client.fakes import FAST
from tests.client.groups_of_brokers import GroupBrokers
from tests.client.several_brokers import run_cluster
from tests.fake_link import FakeLink, FakeTransport, OnFrame

import magnetar
from magnetar_core.errors import LogUnavailable
from magnetar_core.membership.shard_address import ShardAddress, ShardPlace, server_of
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import common_pb2, topic_pb2

BROKER, COORDINATOR = "Broker", "TransactionCoordinator"
A, B, C, D = "a:1", "b:1", "c:1", "d:1"
Shard = tuple[str, int]
# Nobody's time is up: a server that sleeps is given up for no other reason than its successor.
PATIENT = dataclasses.replace(
    FAST,
    operation_timeout_ms=60_000,
    send_timeout_ms=60_000,
    commit_timeout_ms=60_000,
    request_timeout_ms=60_000,
)


class OwnersTransport(FakeTransport):
    """Reaches servers by their names, and shards at the ownerships that are open there."""

    def __init__(self, cluster: Owners) -> None:
        super().__init__(cluster.play, lambda address, service: True)
        self.cluster = cluster
        self.attempts: list[str] = []

    async def connect(
        self, address: str, service: str, on_frame: OnFrame, on_closed: Callable[[], None]
    ) -> FakeLink:
        self.attempts.append(address)
        shard = ShardAddress.parse(address)
        if server_of(address) in self.cluster.frozen:
            await asyncio.get_running_loop().create_future()
        if shard is not None and self.cluster.owner.get((service, shard.place.shard)) != (
            shard.server,
            shard.place.epoch,
        ):
            raise LinkClosed(f"not here: {address}")
        if server_of(address) in self.dead:
            raise LinkClosed("unreachable")
        return await super().connect(address, service, on_frame, on_closed)


class Owners(GroupBrokers):
    """Servers a, b and c, with shards that go from one to another.

    Attributes:
        owner: the server of each shard, and the epoch; a shard without one is left out.
        frozen: servers that keep their links, and do nothing.
        late_views: what servers believe that have not heard of the latest changes.
        unhurried: servers do not tell of changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.servers = [A, B, C]
        self.frozen: set[str] = set()
        self.late_views: dict[str, dict[Shard, tuple[str, int]]] = {}
        self.unhurried = False
        self.epoch = 10
        self.owner: dict[Shard, tuple[str, int]] = {}
        self.net: OwnersTransport = OwnersTransport(self)
        for number, server in enumerate(self.servers):
            for kind in (BROKER, COORDINATOR):
                self.epoch += 1
                self.owner[kind, number] = (server, self.epoch)
        self.brokers = [self.address(BROKER, number) for number in range(3)]
        self.coordinators = {self.address(COORDINATOR, number): number for number in range(3)}

    def address(
        self, kind: str, number: int, view: dict[Shard, tuple[str, int]] | None = None
    ) -> str:
        server, epoch = (self.owner if view is None else view).get((kind, number), ("", 0))
        return str(ShardAddress(server, ShardPlace(number, epoch)))

    # What happens to shards.

    def lose(self, kind: str, number: int, *, breaks: bool = True) -> None:
        """Nobody has the shard any more; its owner breaks its links, or says nothing."""
        address = self.address(kind, number)
        self.owner.pop((kind, number), None)
        for link in [one for one in self.net.links if one.address == address]:
            if breaks:
                link.break_now()
            else:
                link.half_open = True
        self._settle()

    def gets(self, kind: str, number: int, server: str) -> None:
        """A server gets a shard that nobody has."""
        assert (kind, number) not in self.owner
        self.epoch += 1
        self.owner[kind, number] = (server, self.epoch)
        self._settle()
        if not self.unhurried:
            self.tell()

    def pass_on(self, kind: str, number: int, server: str, *, breaks: bool = True) -> None:
        self.lose(kind, number, breaks=breaks)
        self.gets(kind, number, server)

    def give_all(self, *servers: str) -> None:
        """These have the shards from now on, in turn."""
        for kind in (BROKER, COORDINATOR):
            for number in range(3):
                server = servers[number % len(servers)]
                if self.owner.get((kind, number), ("", 0))[0] != server:
                    self.pass_on(kind, number, server)

    def freeze(self, server: str) -> None:
        """The process sleeps; its links stay, and so do its shards until others get them."""
        self.frozen.add(server)
        for link in self.net.links:
            if server_of(link.address) == server:
                link.half_open = True

    def take_over(self, server: str, heir: str) -> None:
        """All shards of a server that is gone or sleeps go to another one."""
        for (kind, number), (owner, _) in list(self.owner.items()):
            if owner == server:
                self.pass_on(kind, number, heir, breaks=False)

    def die(self, server: str) -> None:
        """The process is gone, and with it its links; nobody has its shards yet."""
        self.net.dead.add(server)
        for (kind, number), (owner, _) in list(self.owner.items()):
            if owner == server:
                self.lose(kind, number)
        for link in [one for one in self.net.links if server_of(one.address) == server]:
            link.break_now()

    def tell(self) -> None:
        """The servers tell of changes, those that are awake."""
        for link in self.net.links:
            if server_of(link.address) not in self.frozen:
                link.say(common_pb2.CommandOwnersChanged())

    def _settle(self) -> None:
        """What the shards kept goes to their new addresses."""
        for number, before in enumerate(self.brokers):
            after = self.address(BROKER, number)
            if after != before:
                groups = self._groups_at.pop(before, None)
                if groups is not None:
                    groups.address = after
                    self._groups_at[after] = groups
        self.brokers = [self.address(BROKER, number) for number in range(3)]
        self.coordinators = {
            self.address(COORDINATOR, number): number for number in self.coordinators.values()
        }

    # What servers say.

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        is_of_shard = ShardAddress.parse(link.address) is not None
        if not is_of_shard and name not in ("hello", "get_cluster_info"):
            raise LogUnavailable("this server has no shard")
        return super().handle(link, name, body)

    def view(self, link: FakeLink) -> dict[Shard, tuple[str, int]]:
        return self.late_views.get(server_of(link.address), self.owner)

    def on_get_cluster_info(self, link: FakeLink, body: Any) -> Any:
        assert "#" not in body.reached_at
        return topic_pb2.CommandGetClusterInfoResponse(
            cluster_hash="hash",
            membership_version=1,
            brokers=[
                topic_pb2.Member(
                    name=f"broker-{number}", address=self.address(BROKER, number, self.view(link))
                )
                for number in range(3)
            ],
            coordinators=[
                topic_pb2.Member(
                    name=f"coordinator-{number}",
                    address=self.address(COORDINATOR, number, self.view(link)),
                    tcid=number,
                )
                for number in range(3)
            ],
        )

    def on_lookup(self, link: FakeLink, body: Any) -> Any:
        topic_id, partitions = self.find(body.topic)
        return topic_pb2.CommandLookupResponse(
            topic_id=topic_id,
            broker_addresses=[
                self.address(BROKER, number % 3, self.view(link))
                for number, _ in enumerate(partitions)
            ],
        )

    # What a test asks.

    def links_to(self, kind: str, number: int) -> list[FakeLink]:
        """The links to all owners of a shard, of now and before, that are not closed."""
        mark = f"#{number}."
        return [link for link in self.net.links if mark in link.address and link.service == kind]

    def tcid_asked(self, name: str) -> int:
        """The coordinator that was asked this last."""
        return self.coordinators[self.asked(name)[-1]]


def run_owners(
    test: Callable[[Owners, magnetar.Client], Awaitable[None]],
    address: str | Sequence[str] = A,
    config: magnetar.ClientConfig = FAST,
    prepare: Callable[[Owners], None] = lambda cluster: None,
    limit_s: float = 300,
) -> None:
    """Run a test against such a cluster, as `run_with` does."""
    run_cluster(Owners, test, address, config, prepare, limit_s)
