"""A member tells who takes part in its cluster, and takes drains and rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from tests.cluster.directories import MemoryCluster
from tests.core.envelope import parsed
from tests.virtual_time import run, time_passes
from tests.waiting import until

from magnetar.testing.envelope import command
from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.member_commands import MemberCommands
from magnetar_cli.servers.membership import Membership
from magnetar_cli.servers.membership_commands import membership_handlers
from magnetar_cluster.background import Background
from magnetar_cluster.directory.cluster_directory import ClusterDirectory
from magnetar_cluster.directory.view import BROKER, Format, Member, MemberName, ShardName
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host import Host
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOwnership
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.errors import InvalidArgument, LogUnavailable, MagnetarError, from_wire
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import service_pb2
from magnetar_core.wire import topic_pb2 as wire

FIXED = Format(broker_shards=4, coordinator_shards=1)
NAMES = ("a", "b")


class Shard:
    """A shard that is open, and never fails."""

    async def close(self) -> None:
        pass

    async def abandon(self) -> None:
        pass


class Opener:
    async def open(self, ownership: ShardOwnership) -> RunningShard:
        return Shard()


class Server:
    """A member, and a conversation with it."""

    def __init__(self, directory: ClusterDirectory, name: str, kind: str = BROKER) -> None:
        self.name = MemberName(kind, name)
        loop = asyncio.get_running_loop()
        self.host = Host(
            directory,
            Opener(),
            HostSettings(settling_ms=100),
            cluster_format=FIXED,
            name=self.name,
            member=Member(address=f"{name}:1", version="1.0"),
            now_ms=lambda: loop.time() * 1_000,
            random=Random(name),
        )
        self.changes = Background()
        self.directory = directory
        membership = membership_handlers(
            Membership(self.host, directory, FIXED, self.name), self.changes.start
        )
        config = BrokerConfig(name="broker-0", address=f"{name}:1")
        own = ClusterResponses(config, OwnersBook(lambda: self.host.view), name)
        self._commands = MemberCommands(own, membership)
        self._frames: list[service_pb2.Frame] = []
        self._session = self._commands.accept(Conversation(write=parsed(self._frames.append)))

    async def ask(self, body: Any) -> Any:
        """Return the answer. Raises: MagnetarError."""
        before = len(self._frames)
        self._session.on_frame(service_pb2.Frame(commands=[command(body, 1)]))
        await until(lambda: len(self._frames) > before)
        (answer,) = self._frames[-1].commands
        name = answer.WhichOneof("body")
        assert name is not None
        if name == "error":
            raise from_wire(answer.error)
        return getattr(answer, name)

    async def describe(self) -> wire.CommandDescribeMembersResponse:
        answer: wire.CommandDescribeMembersResponse = await self.ask(wire.CommandDescribeMembers())
        return answer

    async def owners(self) -> dict[int, str]:
        told = await self.describe()
        return {one.number: one.owner for one in told.shards if one.kind == BROKER}

    async def drain(self, name: str, **fields: Any) -> list[tuple[int, str, str]]:
        answer = await self.ask(
            wire.CommandDrainMember(name=wire.MemberName(kind=BROKER, name=name), **fields)
        )
        return moves(answer)

    async def close(self) -> None:
        await self.changes.end()
        await self.host.close()


def moves(answer: Any) -> list[tuple[int, str, str]]:
    return [(one.number, one.before, one.after) for one in answer.moves]


def with_servers(scenario: Callable[[Server, Server], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        cluster = MemoryCluster()
        await cluster.member().format(FIXED)
        servers = [Server(cluster.member(), name) for name in NAMES]
        for server in servers:
            await server.host.start()
        await time_passes(20)
        await scenario(*servers)
        for server in servers:
            await server.close()
        await cluster.close()

    run(main())


def test_it_tells_members_shards_and_its_lease() -> None:
    async def scenario(a: Server, b: Server) -> None:
        told = await a.describe()
        assert (told.name.kind, told.name.name, told.view_age_ms) == (BROKER, "a", 0)
        assert [(one.name.name, one.address, one.server_version) for one in told.members] == [
            ("a", "a:1", "1.0"),
            ("b", "b:1", "1.0"),
        ]
        assert set((await a.owners()).values()) == {"a", "b"}
        held = {one.number: (one.epoch, one.phase) for one in told.held}
        assert held == {
            one.number: (one.epoch, "serving") for one in told.shards if one.owner == "a"
        }
        settings = HostSettings()
        assert told.lease.duration_ms == settings.lease_duration_ms
        assert 0 <= told.lease.age_ms <= settings.renewal_interval_ms + 10
        assert told.lease.age_ms < told.lease.silent_age_ms < told.lease.duration_ms
        # Of a coordinator's shard, which has no owner.
        (other,) = [one for one in told.shards if one.kind != BROKER]
        assert (other.owner, other.epoch) == ("", 0)

    with_servers(scenario)


def test_a_lease_that_is_not_renewed_gets_older() -> None:
    async def scenario(a: Server, b: Server) -> None:
        lease = a.host.lease
        assert lease is not None
        lease.renewed = lambda sent_at_ms: None  # type: ignore[method-assign]
        before = (await a.describe()).lease.age_ms
        await time_passes(0.5)
        assert (await a.describe()).lease.age_ms >= before + 450
        lease.end()
        assert not (await a.describe()).HasField("lease")

    with_servers(scenario)


def test_a_drain_tells_what_moves_and_moves_it() -> None:
    async def scenario(a: Server, b: Server) -> None:
        before = await a.owners()
        expected = [(number, "b", "a") for number, name in before.items() if name == "b"]
        # A dry run changes nothing.
        assert await a.drain("b", dry_run=True) == expected
        await time_passes(20)
        assert await a.owners() == before
        assert await a.drain("b") == expected
        await time_passes(20)
        assert set((await a.owners()).values()) == {"a"}
        assert [one.draining for one in (await b.describe()).members] == [False, True]
        with pytest.raises(InvalidArgument, match="no other broker could take the shards of a"):
            await b.drain("a", dry_run=True)
        assert await b.drain("b", undo=True)
        await time_passes(20)
        assert await a.owners() == before

    with_servers(scenario)


def test_a_rebalance_takes_pins_back() -> None:
    async def scenario(a: Server, b: Server) -> None:
        before = await a.owners()
        number = next(number for number, name in before.items() if name == "a")
        await a.directory.pin(ShardName(BROKER, number), "b")
        await time_passes(20)
        pinned = await a.describe()
        assert {one.pinned_to for one in pinned.shards if one.number == number} == {"b"}
        told = await a.ask(wire.CommandRebalance(dry_run=True))
        assert (told.pins, (number, "b", "a") in moves(told)) == (1, True)
        assert await a.ask(wire.CommandRebalance()) == told
        await time_passes(20)
        assert await b.owners() == before

    with_servers(scenario)


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "c"), ("coordinator", "a"), ("x", "a")])
def test_only_members_are_drained(kind: str, name: str) -> None:
    async def scenario(a: Server, b: Server) -> None:
        body = wire.CommandDrainMember(name=wire.MemberName(kind=kind, name=name))
        with pytest.raises(InvalidArgument, match="the cluster has no"):
            await a.ask(body)
        assert not a.host.view.draining

    with_servers(scenario)


def test_without_the_directory_nothing_changes() -> None:
    async def scenario(a: Server, b: Server) -> None:
        a.host._watch_broken_at_ms = 0.0
        for body in (wire.CommandRebalance(), wire.CommandDrainMember()):
            with pytest.raises(LogUnavailable, match="no contact to the directory"):
                await a.ask(body)
        assert (await a.describe()).view_age_ms

    with_servers(scenario)


def test_a_late_copy_of_a_drain() -> None:
    async def scenario(a: Server, b: Server) -> None:
        told = await a.drain("b", call_token=7)
        await time_passes(1)
        await a.drain("b", undo=True, call_token=8)
        await time_passes(1)
        assert await a.drain("b", call_token=7) == told
        await time_passes(1)
        assert not a.host.view.draining

    with_servers(scenario)


def test_a_late_copy_of_a_rebalance() -> None:
    async def scenario(a: Server, b: Server) -> None:
        await a.ask(wire.CommandRebalance(call_token=7))
        shard = ShardName(BROKER, 0)
        await a.directory.pin(shard, "b")
        await time_passes(1)
        assert (await a.ask(wire.CommandRebalance(call_token=7))).pins == 0
        await time_passes(1)
        assert a.host.view.pins == {shard: "b"}

    with_servers(scenario)


def test_an_error_of_a_copy_is_forgotten() -> None:
    """A refusal that may pass is no answer to later copies."""

    async def scenario(a: Server, b: Server) -> None:
        since, a.host._watch_broken_at_ms = a.host._watch_broken_at_ms, 0.0
        body = wire.CommandRebalance(call_token=7)
        with pytest.raises(MagnetarError):
            await a.ask(body)
        a.host._watch_broken_at_ms = since
        assert (await a.ask(body)).pins == 0

    with_servers(scenario)
