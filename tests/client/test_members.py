"""Members of a cluster are described and drained."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fakes import FAST
from tests.client.owners import A, Owners
from tests.client.several_brokers import run_cluster
from tests.fake_link import FakeLink

from magnetar import Client, ClusterMember, MemberLease, MemberShard, ShardMove
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import topic_pb2 as wire

BROKER_A = wire.MemberName(kind="broker", name="a")


class Members(Owners):
    """Servers that answer for themselves.

    Attributes:
        changes: commands that would change something.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Any] = []

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        if name not in ("describe_members", "drain_member", "rebalance"):
            return super().handle(link, name, body)
        if name != "describe_members":
            self.changes.append(body)
        return getattr(self, f"on_{name}")(body)

    def on_describe_members(self, _: Any) -> Any:
        return wire.CommandDescribeMembersResponse(
            name=BROKER_A,
            view_age_ms=3,
            lease=wire.MemberLease(duration_ms=3_000, age_ms=400, silent_age_ms=2_000),
            members=[
                wire.DescribedMember(
                    name=BROKER_A, address="a:1", server_version="1.0", leaving=True, refused=[2]
                ),
                wire.DescribedMember(name=wire.MemberName(kind="broker", name="b"), draining=True),
            ],
            shards=[
                wire.DescribedShard(
                    kind="broker", number=1, owner="a", epoch=7, moves_to="b", pinned_to="c"
                )
            ],
            held=[wire.HeldShard(number=1, epoch=7, phase="serving")],
        )

    def on_drain_member(self, body: Any) -> Any:
        if body.name != BROKER_A:
            raise InvalidArgument("there is no such member")
        moves = [wire.ShardMove(kind="broker", number=1, before="a", after="b")]
        return wire.CommandDrainMemberResponse(moves=moves)

    def on_rebalance(self, body: Any) -> Any:
        moves = [wire.ShardMove(kind="coordinator", number=0, after="c")]
        return wire.CommandRebalanceResponse(moves=moves, pins=1)


def run_members(test: Callable[[Members, Client], Awaitable[None]]) -> None:
    run_cluster(Members, test, A, FAST, lambda cluster: None, 300)


def test_members_are_described() -> None:
    async def test(cluster: Members, client: Client) -> None:
        told = await client.admin.members.describe()
        assert (told.kind, told.name, told.view_age_ms) == ("broker", "a", 3)
        assert told.lease == MemberLease(duration_ms=3_000, age_ms=400, silent_age_ms=2_000)
        assert told.members == (
            ClusterMember("broker", "a", "a:1", "1.0", False, True, (2,)),
            ClusterMember("broker", "b", "", "", True, False, ()),
        )
        assert told.shards == (MemberShard("broker", "broker-1", "a", 7, "b", "c"),)
        assert told.phases == {"broker-1": "serving"}

    run_members(test)


def test_a_drain_and_a_rebalance_tell_what_moves() -> None:
    async def test(cluster: Members, client: Client) -> None:
        members = client.admin.members
        assert await members.drain("broker", "a", dry_run=True) == (
            ShardMove("broker-1", "a", "b"),
        )
        await members.drain("broker", "a", undo=True)
        assert await members.rebalance() == (ShardMove("coordinator-0", "", "c"),)
        assert [(one.dry_run, getattr(one, "undo", None)) for one in cluster.changes] == [
            (True, False),
            (False, True),
            (False, None),
        ]
        # Each call is another one, whatever arrives late.
        assert len({one.call_token for one in cluster.changes} - {0}) == 3
        with pytest.raises(InvalidArgument, match="no such member"):
            await members.drain("broker", "x")

    run_members(test)
