"""Hosts over one directory: docs/design/0009-owners.md, Who shall have what."""

from __future__ import annotations

from tests.cluster.hosting import Cluster, run
from tests.virtual_time import time_passes


def test_one_member_gets_all_shards_and_a_second_one_its_half_after_the_settling_time() -> None:
    async def scenario() -> None:
        cluster = Cluster(shards=6)
        await cluster.start("a")
        assert await cluster.until(5) < 1
        await cluster.start("b")
        await time_passes(9.5)
        assert cluster.loads() == [0, 6]
        await time_passes(3)
        assert cluster.loads() == [3, 3]
        assert cluster.nodes["a"].closing_most == 1
        assert cluster.nodes["a"].host.counts.handovers == 3
        await cluster.end()

    run(scenario())


def test_the_shards_of_a_member_that_dies_are_taken_when_its_lease_ends() -> None:
    async def scenario() -> None:
        cluster = Cluster(shards=6)
        await cluster.start("a", "b", "c")
        await cluster.until(5)
        cluster.kill("b")
        assert await cluster.until(10) <= 3.2
        await cluster.end()

    run(scenario())


def test_a_member_that_stops_hands_over_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        cluster = Cluster(shards=6)
        await cluster.start("a", "b", "c")
        await cluster.until(5)
        await time_passes(15)
        assert cluster.loads() == [2, 2, 2]
        b = cluster.nodes.pop("b")
        await cluster.loop.spawn(b.incarnation, b.host.drain())
        owners = cluster.service.state.view.owners
        assert {one.member for one in owners.values()} == {"a", "c"}
        assert len(owners) == 6
        assert await cluster.until(1) <= 0.1
        assert b.host.counts.lost == 0
        assert b.host.counts.handovers == 2
        await cluster.loop.spawn(b.incarnation, b.host.close())
        view = cluster.service.state.view
        assert {one.name for one in view.members} == {"a", "c"}
        assert not view.draining
        await cluster.end()

    run(scenario())
