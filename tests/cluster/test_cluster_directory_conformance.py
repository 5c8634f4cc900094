"""What every directory promises to the members of a cluster (0009-owners.md, The directory)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.cluster.directories import (
    LEAVING,
    LONG_MS,
    MEMBER,
    S0,
    S1,
    SHORT_MS,
    A,
    B,
    Cluster,
    EtcdCluster,
    MemoryCluster,
    Watcher,
    present,
    run,
)
from tests.etcd_server import EtcdServer
from tests.waiting import pace

from magnetar_cluster.directory.cluster_directory import LeaseExpired
from magnetar_cluster.directory.view import (
    BROKER,
    COORDINATOR,
    Format,
    Member,
    MemberName,
    ShardName,
    ShardOwner,
    View,
)
from magnetar_storage.durable_mark import DurableMark

MakeCluster = Callable[[], Cluster]


OUTSIDE = pytest.mark.xdist_group("outside")


@pytest.fixture(params=[pytest.param("etcd", marks=OUTSIDE), "memory"])
def cluster(request: pytest.FixtureRequest) -> MakeCluster:
    if request.param == "memory":
        return MemoryCluster
    server = request.getfixturevalue("etcd_server")
    assert isinstance(server, EtcdServer)
    return lambda: EtcdCluster(server)


def test_the_format_is_fixed_once(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        members = [cluster.member() for _ in range(5)]
        assert await members[0].format(None) is None
        wanted = [Format(broker_shards=8, coordinator_shards=n, token=f"{n}") for n in range(1, 6)]
        found = await asyncio.gather(
            *(member.format(form) for member, form in zip(members, wanted, strict=True))
        )
        assert len(set(found)) == 1
        assert found[0] in wanted
        other = Format(broker_shards=16, coordinator_shards=1, token="z")
        for again in (await members[1].format(other), await members[2].format(None)):
            assert again == found[0]
            assert again is not None
            assert again.token == found[0].token

    run(cluster, test)


def test_a_lease_that_nobody_renews_ends_with_all_that_is_bound_to_it(
    cluster: MakeCluster,
) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        watcher = Watcher(other)
        kept = await one.grant(LONG_MS)
        lease = await one.grant(SHORT_MS)
        assert await one.join(kept, A, MEMBER)
        assert await one.join(lease, B, MEMBER)
        epochs = [await one.claim(lease, shard, "b") for shard in (S0, S1)]
        assert all(epochs)
        await watcher.until(lambda view: B in view.members and len(view.shard_owners) == 2)
        last = await watcher.until(lambda view: B not in view.members)
        assert last.members == {A: MEMBER}
        assert last.shard_owners == {}
        with pytest.raises(LeaseExpired):
            await one.renew(lease)
        with pytest.raises(LeaseExpired):
            await one.join(lease, B, MEMBER)
        with pytest.raises(LeaseExpired):
            await one.claim(lease, S0, "b")
        await one.revoke(lease)
        await one.renew(kept)

    run(cluster, test)


def test_a_lease_that_is_renewed_goes_on(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        watcher = Watcher(other)
        renewed = await one.grant(SHORT_MS)
        assert await one.join(renewed, A, MEMBER)

        async def renewing() -> None:
            while True:
                await one.renew(renewed)
                await pace(0.1)

        task = asyncio.create_task(renewing())
        for _ in range(2):
            # Began later, and ends earlier.
            short = await other.grant(SHORT_MS)
            assert await other.join(short, B, MEMBER)
            await watcher.until(lambda view: B in view.members)
            view = await watcher.until(lambda view: B not in view.members)
            assert A in view.members
        assert not task.done()
        task.cancel()

    run(cluster, test)


def test_leases_are_never_given_twice(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        members = [cluster.member() for _ in range(3)]
        leases = await asyncio.gather(
            *(member.grant(LONG_MS) for member in members for _ in range(5))
        )
        for lease in leases:
            await members[0].revoke(lease)
        leases += [await members[1].grant(LONG_MS)]
        assert len(set(leases)) == 16

    run(cluster, test)


def test_a_lease_that_is_revoked_takes_its_rows_along_and_no_others(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        first, second = await one.grant(LONG_MS), await other.grant(LONG_MS)
        assert await one.join(first, A, MEMBER)
        assert await other.join(second, B, MEMBER)
        assert await one.claim(first, S0, "a")
        epoch = await other.claim(second, S1, "b")
        assert epoch
        await one.revoke(first)
        await one.revoke(first)
        view = await present(other)
        assert view.members == {B: MEMBER}
        assert view.shard_owners == {S1: ShardOwner("b", epoch)}
        with pytest.raises(LeaseExpired):
            await one.renew(first)
        await other.renew(second)

    run(cluster, test)


def test_a_name_has_one_member(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        first, second = await one.grant(LONG_MS), await other.grant(LONG_MS)
        assert await one.join(first, A, MEMBER)
        assert await one.join(first, A, MEMBER), "its answer may have been lost"
        assert not await other.join(second, A, Member(address="10.0.0.2:1"))
        assert (await present(other)).members == {A: MEMBER}
        moved = Member(address="10.0.0.3:1")
        assert await one.join(first, A, moved), "a member may say something else of itself"
        assert await one.join(first, A, moved)
        assert (await present(other)).members == {A: moved}
        # A kind has names of its own.
        assert await other.join(second, MemberName(COORDINATOR, "a"), MEMBER)
        await one.revoke(first)
        assert await other.join(second, A, Member(address="10.0.0.2:1"))
        assert (await present(one)).members[A] == Member(address="10.0.0.2:1")

    run(cluster, test)


def test_of_many_claims_one_succeeds(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        members = {f"m{number}": cluster.member() for number in range(6)}
        leases = {name: await one.grant(LONG_MS) for name, one in members.items()}
        shards = Format(broker_shards=8, coordinator_shards=0).shards(BROKER)
        for _ in range(2):
            asked = [(shard, name) for shard in shards for name in members]
            epochs = await asyncio.gather(
                *(members[name].claim(leases[name], shard, name) for shard, name in asked)
            )
            won = {
                asked[position]: epoch for position, epoch in enumerate(epochs) if epoch is not None
            }
            assert sorted(shard for shard, _ in won) == list(shards)
            assert len(set(won.values())) == len(shards)
            view = await present(members["m0"])
            assert view.shard_owners == {
                shard: ShardOwner(name, epoch) for (shard, name), epoch in won.items()
            }
            for (shard, _), epoch in won.items():
                await members["m1"].release(shard, epoch)
            assert (await present(members["m2"])).shard_owners == {}

    run(cluster, test)


def test_a_claim_may_be_repeated_by_whoever_has_it(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        first, second = await one.grant(LONG_MS), await other.grant(LONG_MS)
        epoch = await one.claim(first, S0, "a")
        assert epoch
        await one.drain(B, draining=True)
        assert await one.claim(first, S0, "a") == epoch
        assert await other.claim(second, S0, "b") is None
        # The same member, after a restart: its former lease has the shard until it ends.
        assert await other.claim(second, S0, "a") is None
        assert (await present(one)).shard_owners == {S0: ShardOwner("a", epoch)}

    run(cluster, test)


def test_what_is_released_is_the_ownership_that_was_meant(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        first, second = await one.grant(LONG_MS), await other.grant(LONG_MS)
        former = await one.claim(first, S0, "a")
        assert former
        await one.release(S0, former)
        await one.release(S0, former)
        await one.release(S1, former)
        epoch = await other.claim(second, S0, "b")
        assert epoch
        assert epoch > former
        for stranger in (former, epoch - 1, epoch + 1, 0):
            await one.release(S0, stranger)
        assert (await present(one)).shard_owners == {S0: ShardOwner("b", epoch)}
        await one.release(S0, epoch)
        again = await one.claim(first, S0, "a")
        assert again
        assert again > epoch

    run(cluster, test)


def test_a_member_says_that_it_leaves(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one = cluster.member()
        lease = await one.grant(LONG_MS)
        assert await one.join(lease, A, MEMBER)
        assert await one.join(lease, A, LEAVING)
        assert (await present(cluster.member())).members == {A: LEAVING}

    run(cluster, test)


def test_how_far_a_shard_is_durable_is_said_by_its_owner_and_outlives_it(
    cluster: MakeCluster,
) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        assert await one.durable_mark(S0) is None
        lease = await one.grant(LONG_MS)
        epoch = await one.claim(lease, S0, "a")
        assert epoch
        assert await one.note_durable(S0, epoch, DurableMark(1, 7))
        assert await one.note_durable(S0, epoch, DurableMark(1, 8))
        assert not await one.note_durable(S1, epoch, DurableMark(1, 8)), "it has no owner"
        assert not await other.note_durable(S0, 0, DurableMark(1, 9)), "it has one"
        await one.revoke(lease)
        assert not await one.note_durable(S0, epoch, DurableMark(1, 9)), "who was late"
        assert await other.durable_mark(S0) == DurableMark(1, 8)
        second = await other.grant(LONG_MS)
        later = await other.claim(second, S0, "b")
        assert later
        assert not await one.note_durable(S0, epoch, DurableMark(1, 9))
        assert await other.note_durable(S0, later, DurableMark(1, 12))
        await other.release(S0, later)
        # A person's command, when nobody has the shard.
        assert await one.note_durable(S0, 0, DurableMark(2, 3))
        assert await other.durable_mark(S0) == DurableMark(2, 3)
        assert await other.durable_mark(ShardName(COORDINATOR, 0)) is None

    run(cluster, test)


def test_no_member_hears_how_far_shards_are_durable(cluster: MakeCluster) -> None:
    """It changes each second, in every shard."""

    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        lease = await one.grant(LONG_MS)
        epoch = await one.claim(lease, S0, "a")
        assert epoch
        watcher = Watcher(other)
        await watcher.until(lambda view: S0 in view.shard_owners)
        for sequence in range(20):
            assert await one.note_durable(S0, epoch, DurableMark(1, sequence))
        assert await one.join(lease, A, MEMBER)
        await watcher.until(lambda view: A in view.members)
        assert len(watcher.views) == 2
        await watcher.stop()
        # A new watch is told nothing of it either.
        assert (await present(cluster.member())).shard_owners == {S0: ShardOwner("a", epoch)}

    run(cluster, test)


def test_drains_and_pins_outlive_members(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        lease = await one.grant(LONG_MS)
        assert await one.join(lease, A, MEMBER)
        await other.drain(A, draining=True)
        await other.drain(A, draining=True)
        await other.drain(B, draining=True)
        await other.pin(S0, "a")
        await other.pin(S1, "nobody")
        await other.pin(S1, "b")
        await one.revoke(lease)
        view = await present(one)
        assert view.draining == {A, B}
        assert view.pins == {S0: "a", S1: "b"}
        await one.drain(A, draining=False)
        await one.drain(A, draining=False)
        await one.pin(S1, "")
        await one.pin(S1, "")
        view = await present(other)
        assert view.draining == {B}
        assert view.pins == {S0: "a"}

    run(cluster, test)


def test_wishes_of_many_at_once_are_all_kept(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        members = [cluster.member() for _ in range(4)]
        shards = Format(broker_shards=4, coordinator_shards=0).shards(BROKER)
        await asyncio.gather(
            *(one.pin(shard, "a") for one, shard in zip(members, shards, strict=True))
        )
        assert (await present(members[0])).pins == dict.fromkeys(shards, "a")

    run(cluster, test)


def test_a_watch_shows_what_happens_in_order_and_its_end(cluster: MakeCluster) -> None:
    """Views may be left out, but never the last one, and none comes twice or after a later one."""

    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        await one.pin(S0, "0")
        watchers = [Watcher(other), Watcher(one), Watcher(one)]
        lease = await one.grant(LONG_MS)
        for number in range(1, 51):
            await one.pin(S0, str(number))
            epoch = await one.claim(lease, S1, "a")
            assert epoch
            await one.release(S1, epoch)
        late = Watcher(other)
        for watcher in [*watchers, late]:
            await watcher.until(lambda view: view.pins[S0] == "50" and not view.shard_owners)
            revisions = [view.revision for view in watcher.views]
            assert revisions == sorted(set(revisions))
            pins = [int(view.pins[S0]) for view in watcher.views]
            assert pins == sorted(pins)
            epochs = [view.shard_owners[S1].epoch for view in watcher.views if view.shard_owners]
            assert epochs == sorted(set(epochs))
        assert len(late.views) == 1

    run(cluster, test)


def test_a_watch_that_nobody_reads_goes_on_with_the_latest_view(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        views = other.watch()
        first = await anext(views)
        assert first.pins == {}
        for number in range(20):
            await one.pin(S0, str(number))
        seen: list[View] = [first]
        while seen[-1].pins.get(S0) != "19":
            seen.append(await anext(views))
        assert [view.revision for view in seen] == sorted({view.revision for view in seen})
        # What was returned stays as it was.
        assert first.pins == {}

    run(cluster, test)


def test_no_view_shows_an_owner_that_is_no_member(cluster: MakeCluster) -> None:
    """A lease ends at once, with all its rows."""

    async def test(cluster: Cluster) -> None:
        one, other = cluster.member(), cluster.member()
        watcher = Watcher(other)
        shards = Format(broker_shards=20, coordinator_shards=0).shards(BROKER)
        for ends_by_itself in (False, True):
            lease = await one.grant(SHORT_MS)
            assert await one.join(lease, A, MEMBER)
            await asyncio.gather(*(one.claim(lease, shard, "a") for shard in shards))
            if not ends_by_itself:
                await one.revoke(lease)
            await watcher.until(lambda view: view.revision > 2 and A not in view.members)
        for view in watcher.views:
            for shard, owner in view.shard_owners.items():
                assert MemberName(shard.kind, owner.member) in view.members

    run(cluster, test)


def test_names_may_be_of_any_letters(cluster: MakeCluster) -> None:
    async def test(cluster: Cluster) -> None:
        one = cluster.member()
        lease = await one.grant(LONG_MS)
        names = [MemberName(BROKER, text) for text in ("a/b", "ä", "a b", "members/broker/a")]
        for name in names:
            assert await one.join(lease, name, MEMBER)
            await one.drain(name, draining=True)
        shard = ShardName(COORDINATOR, 1023)
        epoch = await one.claim(lease, shard, "a/b")
        assert epoch
        view = await present(one)
        assert set(view.members) == set(names) == view.draining
        assert view.shard_owners == {shard: ShardOwner("a/b", epoch)}

    run(cluster, test)
