"""Members that cannot open shards: docs/design/0009-owners.md, Placement of shards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.hosting import SETTINGS, Cluster, Node, now_ms, on_cluster
from tests.virtual_time import time_passes

from magnetar_cluster.directory.view import BROKER, Format, Member, MemberName, ShardName, View
from magnetar_cluster.directory.wish import may_differ, wish
from magnetar_cluster.hosting.unopenable_shards import UnopenableShards

FIRST = ShardName(BROKER, 0)
A = MemberName(BROKER, "a")
SHARDS = Format(broker_shards=12, coordinator_shards=1).shards(BROKER)


def refused(cluster: Cluster, name: str) -> tuple[int, ...]:
    return cluster.service.state.view.members[MemberName(BROKER, name)].refused


async def settle(cluster: Cluster) -> None:
    await time_passes(12 + 2 * len(cluster.shards))


def spoiled(node: Node, cluster: Cluster) -> None:
    """Its credentials are wrong."""
    node.broken.update(cluster.shards)


# The wish.


def with_refusals(refusals: dict[str, set[int]]) -> View:
    return View(
        members={
            MemberName(BROKER, name): Member(address=f"{name}:1", refused=tuple(sorted(numbers)))
            for name, numbers in refusals.items()
        }
    )


@given(st.fixed_dictionaries({name: st.sets(st.integers(0, 11)) for name in "abcd"}))
def test_only_what_is_refused_lies_elsewhere_and_never_where_it_is_refused(
    refusals: dict[str, set[int]],
) -> None:
    before = wish(with_refusals({name: set() for name in refusals}), SHARDS)
    after = wish(with_refusals(refusals), SHARDS)
    assert after.keys() == before.keys()
    for shard, member in after.items():
        refusing = {name for name, numbers in refusals.items() if shard.number in numbers}
        if before[shard] in refusing and refusing != refusals.keys():
            assert member not in refusing
        else:
            assert member == before[shard]


def test_a_pin_to_a_member_that_cannot_open_the_shard_means_nothing() -> None:
    view = replace(with_refusals({"a": {0}, "b": set()}), pins={FIRST: "a"})
    assert wish(view, SHARDS)[FIRST] == "b"
    assert may_differ(view, replace(with_refusals({"a": set(), "b": set()}), pins={FIRST: "a"}))


# Members.


@on_cluster(shards=6)
async def test_the_part_of_a_member_that_can_open_nothing_goes_to_others(cluster: Cluster) -> None:
    a, b = await cluster.start("a", "b")
    spoiled(a, cluster)
    # Three attempts each, and the others follow.
    assert await cluster.until(12) >= 0
    assert set(cluster.served().values()) == {"b"}
    part = refused(cluster, "a")
    assert len(part) == 3
    assert a.host.refused == part
    assert refused(cluster, "b") == ()
    # It stays so, and costs nothing until the member tries again.
    openings = a.openings, b.openings
    await time_passes(25)
    assert (a.openings, b.openings) == openings


@on_cluster(shards=6)
async def test_one_shard_at_a_time_is_tried_again_and_less_and_less_often(cluster: Cluster) -> None:
    a, _ = await cluster.start("a", "b")
    spoiled(a, cluster)
    await cluster.until(12)
    tried: list[float] = []
    openings, homeless, longest = a.openings, 0.0, 0.0
    for _ in range(20 * 1_800):
        await time_passes(0.05)
        if a.openings > openings:
            openings = a.openings
            tried.append(now_ms() / 1000)
        missing = len(cluster.shards) - len(cluster.served())
        assert missing <= 1
        homeless = homeless + 0.05 if missing else 0.0
        longest = max(longest, homeless)
    # Half an hour: after about 1, 2, 4, 8 and 16 minutes.
    assert 4 <= len(tried) <= 6
    pauses = [after - before for before, after in pairwise(tried)]
    assert all(after > before * 0.9 for before, after in pairwise(pauses))
    assert longest <= 1.0


@on_cluster(shards=6)
async def test_a_member_that_can_open_shards_again_gets_its_part_back(cluster: Cluster) -> None:
    a, _ = await cluster.start("a", "b")
    spoiled(a, cluster)
    await cluster.until(12)
    a.broken.clear()
    await time_passes(75)
    await settle(cluster)
    assert cluster.loads() == [3, 3]
    assert refused(cluster, "a") == ()


@on_cluster(shards=3)
async def test_a_shard_that_nobody_can_open_waits_at_the_member_to_which_it_belongs(
    cluster: Cluster,
) -> None:
    await cluster.start("a", "b", "c")
    for node in cluster.nodes.values():
        node.broken.add(FIRST)
    await time_passes(15)
    assert [refused(cluster, name) for name in "abc"] == [(0,)] * 3
    assert len(cluster.served()) == 2
    belongs = wish(cluster.service.state.view, cluster.shards)[FIRST]
    before = {name: node.openings for name, node in cluster.nodes.items()}
    await time_passes(14)
    for name, node in cluster.nodes.items():
        assert (node.openings > before[name]) is (name == belongs)
    for node in cluster.nodes.values():
        node.broken.clear()
    assert await cluster.until(31) >= 0


@on_cluster(shards=6)
async def test_a_shard_that_nobody_can_open_keeps_no_other_one_from_its_member(
    cluster: Cluster,
) -> None:
    """One is damaged and tried all the time; another one failed here while a store was away."""
    a, b = await cluster.start("a", "b")
    damaged, passing, _ = (ShardName(BROKER, number) for number in _part(cluster, "a"))
    a.broken |= {damaged, passing}
    b.broken.add(damaged)
    await time_passes(20)
    assert refused(cluster, "a") == tuple(sorted((damaged.number, passing.number)))
    a.broken.discard(passing)
    await time_passes(240)
    assert passing.number not in refused(cluster, "a")
    assert cluster.loads() == [2, 3]


@on_cluster(shards=6)
async def test_an_opening_that_hangs_is_given_up_for_others(cluster: Cluster) -> None:
    a, _ = await cluster.start("a", "b")
    a.slow.update(dict.fromkeys(cluster.shards, 10_000.0))
    await time_passes(59)
    assert len(cluster.served()) == 3
    assert await cluster.until(5) < 3
    assert len(refused(cluster, "a")) == 3
    assert a.host.counts.openings_failed == 3
    assert {shard.reason for shard in a.host.shards.values()} == {"it was not open after 60000 ms"}


@on_cluster(shards=2)
async def test_an_opening_that_takes_long_is_waited_for_where_nobody_else_can_do_better(
    cluster: Cluster,
) -> None:
    (a,) = await cluster.start("a")
    a.slow.update(dict.fromkeys(cluster.shards, 500.0))
    assert await cluster.until(600) == 500
    assert a.openings == 2


@on_cluster(shards=2)
async def test_a_shard_that_ends_again_and_again_goes_elsewhere(cluster: Cluster) -> None:
    """A disk is full: the store opens, and its first write fails."""
    await cluster.start("a", "b")
    await settle(cluster)
    was = cluster.served()[FIRST]
    for _ in range(3):
        await cluster.until(5)
        assert cluster.served()[FIRST] == was
        cluster.nodes[was].shard(FIRST).end("no space is left")
        await time_passes(0.1)
    assert await cluster.until(5) < 1
    assert cluster.served()[FIRST] != was


@on_cluster(shards=6)
async def test_a_member_that_refuses_shards_stops_in_order(cluster: Cluster) -> None:
    a, _ = await cluster.start("a", "b")
    a.broken.add(ShardName(BROKER, min(_part(cluster, "a"))))
    await cluster.until(12)
    assert len(a.open_shards()) == 2
    del cluster.nodes["a"]
    assert await cluster.loop.spawn(a.incarnation, a.host.drain()) == ""
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert await cluster.until(1) < 0.5


def _part(cluster: Cluster, name: str) -> list[int]:
    members = {MemberName(BROKER, one): Member(address=f"{one}:1") for one in "ab"}
    found = wish(View(members=members), cluster.shards)
    return [shard.number for shard, member in found.items() if member == name]


# What is remembered.


def test_a_few_failures_are_no_refusal_and_the_first_one_is_where_others_failed() -> None:
    refusals = UnopenableShards(SETTINGS, Random(1))
    refusals.failed(FIRST, 2, 0.0)
    assert list(refusals.numbers) == []
    refusals.failed(FIRST, 3, 0.0)
    assert list(refusals.numbers) == [0]
    refusals.failed(ShardName(BROKER, 7), 1, 0.0)
    assert list(refusals.numbers) == [0, 7]
    refusals.opened(ShardName(BROKER, 5))
    assert list(refusals.numbers) == [0, 7]
    refusals.opened(FIRST)
    assert list(refusals.numbers) == []


def test_the_shard_that_failed_longest_ago_is_tried_first() -> None:
    refusals = UnopenableShards(SETTINGS, Random(1))
    for number in (4, 2, 3):
        refusals.failed(ShardName(BROKER, number), 3, 0.0)
    refusals.try_one(SHARDS, 60_000)
    assert list(refusals.numbers) == [2, 3]
    refusals.failed(ShardName(BROKER, 4), 4, 61_000)
    refusals.try_one(SHARDS, 200_000)
    assert list(refusals.numbers) == [3, 4]
    # One that can be opened by now speaks for all.
    refusals.opened(ShardName(BROKER, 2))
    assert list(refusals.numbers) == []


def test_a_shard_that_lies_elsewhere_is_not_tried_and_not_refused_any_more() -> None:
    """It would not be opened here, and would say nothing until the next attempt."""
    refusals = UnopenableShards(SETTINGS, Random(1))
    for number in (4, 2, 3):
        refusals.failed(ShardName(BROKER, number), 3, 0.0)
    refusals.try_one([ShardName(BROKER, 2)], 60_000)
    assert list(refusals.numbers) == [3]
    refusals.opened(ShardName(BROKER, 2))
    assert list(refusals.numbers) == []


def test_pauses_are_short_again_after_a_long_time() -> None:
    refusals = UnopenableShards(SETTINGS, Random(1))
    time_ms = 0.0
    refusals.failed(FIRST, 3, time_ms)
    for _ in range(10):
        assert refusals.again_at_ms is not None
        time_ms = refusals.again_at_ms
        refusals.try_one(SHARDS, time_ms)
        refusals.failed(FIRST, 4, time_ms + 1_000)
    assert refusals.again_at_ms is not None
    assert refusals.again_at_ms - time_ms >= SETTINGS.constants.refusal_pause_ms_max / 2
    refusals.opened(FIRST)
    time_ms = refusals.again_at_ms + SETTINGS.constants.refusal_pause_ms_max + 1
    refusals.failed(FIRST, 3, time_ms)
    assert refusals.again_at_ms - time_ms <= SETTINGS.constants.refusal_pause_ms_min
