"""Servers, leases and shards: what is seen of them, how soon, and what an administrator changes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.console.test_looks import FakeCoordinators
from tests.fake_link import FakeLink, FakeTransport
from tests.virtual_loop import VirtualClock
from tests.virtual_time import run, time_passes

from magnetar import Client, ClusterInfo, InvalidArgument, LogUnavailable, ShardMove
from magnetar.link.members import Member
from magnetar.testing.envelope import command
from magnetar_console import actions
from magnetar_console.channel import Channel
from magnetar_console.hub import Hub
from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Picture
from magnetar_core.errors import Unimplemented
from magnetar_core.wire import service_pb2
from magnetar_core.wire import topic_pb2 as wire

A, B, C = "a:1", "b:1", "c:1"


class Cluster:
    """Three brokers, of which the last one has no shard.

    Attributes:
        is_fixed: whether servers keep their shards, and do not tell of members.
        hangs: whether brokers do not answer where the shards are.
    """

    def __init__(self) -> None:
        self.is_fixed = False
        self.hangs = False
        self.lease_age_ms = 400
        self.is_draining = False
        self.pinned_to = ""
        self.net = FakeTransport(self, lambda address, service: True)
        self.drained: list[tuple[Any, ...]] = []
        self.moves: tuple[ShardMove, ...] = (ShardMove("broker-0", "a", "b"),)
        members = SimpleNamespace(drain=self.drain, rebalance=self.rebalance)
        self.client = cast(
            Client,
            SimpleNamespace(
                admin=SimpleNamespace(
                    cluster_info=self.cluster_info,
                    members=members,
                    transactions=FakeCoordinators(),
                ),
                close=self.close,
            ),
        )

    async def close(self) -> None:
        pass

    async def cluster_info(self) -> ClusterInfo:
        if self.hangs:
            await time_passes(3)
            raise LogUnavailable("no broker answers")
        mark = ("", "") if self.is_fixed else ("#0.7", "#1.8")
        brokers = tuple(
            Member(f"broker-{number}", f"{server}{mark[number]}")
            for number, server in enumerate((A, B))
        )
        return ClusterInfo("orders", 1, "hash", brokers, (), "1.0")

    def on_frame(self, link: FakeLink, frame: service_pb2.Frame) -> None:
        for one in frame.commands:
            assert one.HasField("describe_members")
            link.push(command(self.answer(link.address), one.request_id))

    def answer(self, address: str) -> Any:
        if self.is_fixed:
            return Unimplemented("shards do not move here").to_wire()
        name = wire.MemberName(kind="broker", name=address[0])
        members = [
            wire.DescribedMember(
                name=wire.MemberName(kind="broker", name=server[0]),
                address=server,
                server_version="1.0",
                draining=self.is_draining and server == A,
            )
            for server in (A, B, C)
        ]
        return wire.CommandDescribeMembersResponse(
            name=name,
            lease=wire.MemberLease(
                duration_ms=3_000, age_ms=self.lease_age_ms, silent_age_ms=2_000
            ),
            members=members,
            shards=[
                wire.DescribedShard(kind="broker", number=0, owner="a", epoch=7, moves_to="b"),
                wire.DescribedShard(kind="broker", number=1, owner="b", epoch=8, pinned_to="b"),
            ],
            held=[wire.HeldShard(number=0, epoch=7, phase="closing")] if address == A else [],
        )

    def kill(self, address: str) -> None:
        self.net.dead.add(address)
        for link in list(self.net.links):
            if link.address == address:
                link.break_now()

    async def drain(self, kind: str, name: str, **how: bool) -> tuple[ShardMove, ...]:
        if not how.pop("dry_run"):
            self.drained.append((kind, name, how))
        return self.moves

    async def rebalance(self, **how: bool) -> tuple[ShardMove, ...]:
        if not how.pop("dry_run"):
            self.drained.append(("rebalance",))
        return self.moves


class Looking:
    """A hub, and what was seen last."""

    def __init__(self, cluster: Cluster) -> None:
        async def connect() -> Client:
            return cluster.client

        self.hub = Hub(connect, lambda: cluster.net, VirtualClock(), "run")
        self.picture = Picture({})
        channel = self.hub.channel(View(views.CLUSTER))
        assert channel is not None
        self._task = asyncio.create_task(self._read(channel))

    async def _read(self, channel: Channel) -> None:
        async with aclosing(channel.pictures()) as pictures:
            async for self.picture in pictures:
                pass

    def rows(self, name: str) -> Any:
        return self.picture.tables[name]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.hub.close()


def test_members_leases_and_moves_are_shown() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        looking = Looking(cluster)
        await time_passes(5)
        assert looking.rows("cluster")["it"]["tells_members"]
        servers = looking.rows("servers")
        # The server c has no shard, and only the other two tell of it.
        assert {key: (one["member"], one["answers"]) for key, one in servers.items()} == {
            f"broker/{server}": (server[0], True) for server in (A, B, C)
        }
        assert [one["shards"] for one in servers.values()] == [["broker-0"], ["broker-1"], []]
        shards = looking.rows("shards")
        first, second = shards["broker-0"], shards["broker-1"]
        assert (first["epoch"], first["phase"], first["moves_to"]) == (7, "closing", "b")
        assert (second["phase"], second["moves_to"], second["pinned_to"]) == ("", "", "b")
        leases = looking.rows("leases")
        assert leases.keys() == servers.keys()
        assert leases["broker/a:1"]["silent_age_ms"] == 2_000
        await looking.close()

    run(scenario())


def test_a_kill_is_shown_within_a_second_though_no_broker_answers() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        looking = Looking(cluster)
        await time_passes(5)
        renewed_ms = looking.rows("leases")["broker/a:1"]["renewed_ms"]
        # The client has not noticed yet, and waits for its time to be up.
        cluster.hangs = True
        for round_number in range(20):
            cluster.kill(A)
            await time_passes(0.95)
            assert looking.rows("servers")["broker/a:1"]["answers"] is False, round_number
            away = [one["what"] for one in looking.rows("events").values()]
            assert away.count("away") == round_number + 1
            cluster.net.dead.clear()
            # Another moment of the look's period each time.
            await time_passes(6 + round_number * 0.05)
            assert looking.rows("servers")["broker/a:1"]["answers"] is True
        assert "No broker tells where the shards are" in looking.picture.problems[0]
        cluster.kill(A)
        await time_passes(10)
        # Its lease stays, and gets older.
        assert looking.rows("leases")["broker/a:1"]["renewed_ms"] >= renewed_ms
        before = looking.rows("leases")["broker/a:1"]
        await time_passes(10)
        assert looking.rows("leases")["broker/a:1"] == before
        await looking.close()

    run(scenario())


def test_a_drain_that_another_one_asks_for_is_told() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        looking = Looking(cluster)
        await time_passes(5)
        cluster.is_draining = True
        await time_passes(5)
        assert looking.rows("servers")["broker/a:1"]["draining"]
        cluster.is_draining = False
        await time_passes(5)
        told = [(one["what"], one["member"]) for one in looking.rows("events").values()]
        assert told == [("draining", "a"), ("takes shards", "a")]
        await looking.close()

    run(scenario())


def test_servers_that_keep_their_shards_have_no_leases() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.is_fixed = True
        looking = Looking(cluster)
        await time_passes(5)
        assert not looking.rows("cluster")["it"]["tells_members"]
        assert looking.rows("leases") == {}
        assert [one["answers"] for one in looking.rows("servers").values()] == [True, True]
        assert {one["epoch"] for one in looking.rows("shards").values()} == {None}
        await looking.close()

    run(scenario())


DRAIN = {"what": "drain", "kind": "broker", "member": "a"}


def test_only_what_was_confirmed_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "magnetar_console.audit")

    async def scenario() -> None:
        cluster = Cluster()
        told = await actions.plan(cluster.client, DRAIN)
        assert told["moves"] == [{"shard": "broker-0", "before": "a", "after": "b"}]
        assert not cluster.drained
        before, cluster.moves = cluster.moves, ()
        with pytest.raises(InvalidArgument, match="the cluster has changed"):
            await actions.change(cluster.client, DRAIN | {"seen": told["seen"]}, "ann")
        cluster.moves = before
        # The mark of another drain does not count.
        other = await actions.plan(cluster.client, DRAIN | {"member": "b"})
        with pytest.raises(InvalidArgument, match="the cluster has changed"):
            await actions.change(cluster.client, DRAIN | {"seen": other["seen"]}, "ann")
        assert not cluster.drained
        assert "ann" not in caplog.text
        done = await actions.change(cluster.client, DRAIN | {"seen": told["seen"]}, "ann")
        assert done == {"moves": 1}
        assert cluster.drained == [("broker", "a", {"undo": False})]

    run(scenario())
    assert "ann asks to drain broker a" in caplog.text
    assert "1 shards are to move, as ann asked" in caplog.text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (DRAIN | {"what": "end the drain of"}, ("broker", "a", {"undo": True})),
        ({"what": "rebalance"}, ("rebalance",)),
    ],
)
def test_drains_end_and_the_cluster_is_rebalanced(
    body: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        told = await actions.plan(cluster.client, body)
        await actions.change(cluster.client, body | {"seen": told["seen"]}, "ann")
        assert cluster.drained == [expected]

    run(scenario())


@pytest.mark.parametrize(
    "body", [{}, {"what": "abort"}, DRAIN | {"kind": 7}, DRAIN | {"member": []}]
)
def test_requests_that_are_not_complete_are_refused(body: dict[str, Any]) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidArgument, match="does not say what to change"):
            await actions.plan(Cluster().client, body)

    run(scenario())
