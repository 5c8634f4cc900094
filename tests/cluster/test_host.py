"""Hosts over one directory: docs/design/0009-owners.md, Placement of shards; Zombies."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.cluster.hosting import (
    SETTINGS,
    Cluster,
    Node,
    delete_row,
    now_ms,
    on_cluster,
    run,
)
from tests.configs import host_settings
from tests.virtual_time import time_passes

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryWentBack
from magnetar_cluster.directory.cluster_directory_state import Claim, Join, Release, Renew, Request
from magnetar_cluster.directory.view import BROKER, Member, MemberName, ShardName, View
from magnetar_cluster.hosting.shard_phase import ShardPhase

A = MemberName(BROKER, "a")
FIRST = ShardName(BROKER, 0)


async def started(cluster: Cluster, *names: str) -> list[Node]:
    """Members that have all shards, evenly."""
    nodes = await cluster.start(*names)
    await cluster.until(5)
    if len(names) > 1:
        await time_passes(12 + 2 * len(cluster.shards))
    return nodes


def owner(cluster: Cluster, shard: ShardName = FIRST) -> str:
    return cluster.service.state.view.shard_owners[shard].member


def other(cluster: Cluster, name: str) -> str:
    return next(node for node in cluster.nodes if node != name)


def on_joining(node: Node, **troubles: float) -> None:
    """Let troubles begin when a member has joined, before it claims anything."""

    def begin() -> None:
        if node.host.joined:
            node.host.on_change.remove(begin)
            vars(node.troubles).update(troubles)

    node.host.on_change.append(begin)


# The wish.


@on_cluster(shards=6)
async def test_members_know_how_many_shards_nobody_has(cluster: Cluster) -> None:
    a, b = await started(cluster, "a", "b")
    assert [a.host.unowned, b.host.unowned] == [0, 0]
    theirs = sum(one.member == "a" for one in cluster.service.state.view.shard_owners.values())
    cluster.kill("a")
    seen = {b.host.unowned}
    b.host.on_view.append(lambda _: seen.add(b.host.unowned))
    await time_passes(10)
    assert max(seen) == theirs
    assert b.host.unowned == 0


@on_cluster(shards=6)
async def test_one_member_gets_all_shards_and_a_second_one_its_half_after_the_settling_time(
    cluster: Cluster,
) -> None:
    (a,) = await cluster.start("a")
    assert await cluster.until(5) < 1
    await cluster.start("b")
    await time_passes(9.5)
    assert cluster.loads() == [0, 6]
    await time_passes(3)
    assert cluster.loads() == [3, 3]
    assert a.closing_most == 1
    assert a.host.counts.handovers == 3


@on_cluster(shards=6)
async def test_one_shard_is_handed_over_at_a_time_until_its_next_owner_has_it(
    cluster: Cluster,
) -> None:
    (a,) = await started(cluster, "a")
    a.troubles.closing_s = 1
    (b,) = await cluster.start("b")
    b.troubles.delay_s = 1
    least = 6
    for _ in range(400):
        await time_passes(0.1)
        least = min(least, len(cluster.service.state.view.shard_owners))
    assert cluster.loads() == [3, 3]
    assert least == 5
    assert a.closing_most == 1


@on_cluster(shards=6)
async def test_a_member_that_restarts_within_the_settling_time_takes_nothing_from_others(
    cluster: Cluster,
) -> None:
    await started(cluster, "a", "b")
    before = len(cluster.judge.openings)
    await cluster.start("c")
    await time_passes(5)
    cluster.kill("c")
    await time_passes(30)
    assert len(cluster.judge.openings) == before


@pytest.mark.parametrize("how", ["pin", "drain"])
@on_cluster(shards=4)
async def test_pins_and_drains_do_not_wait(cluster: Cluster, how: str) -> None:
    await started(cluster, "a", "b")
    was = owner(cluster)
    if how == "pin":
        await cluster.admin.pin(FIRST, other(cluster, was))
    else:
        await cluster.admin.drain(MemberName(BROKER, was), draining=True)
    await time_passes(3)
    assert owner(cluster) == other(cluster, was)
    assert len(cluster.served()) == 4
    assert cluster.loads() == ([1, 3] if how == "pin" else [0, 4])
    assert cluster.nodes[was].closing_most == 1


@on_cluster(shards=2)
async def test_a_drained_member_takes_nothing_though_nobody_else_is_there(cluster: Cluster) -> None:
    await cluster.admin.drain(A, draining=True)
    await cluster.start("a")
    await time_passes(10)
    assert cluster.judge.openings == []
    await cluster.admin.drain(A, draining=False)
    assert await cluster.until(1) < 0.5
    # What it has, it keeps, rather than that nobody has it.
    await cluster.admin.drain(A, draining=True)
    await time_passes(30)
    assert len(cluster.served()) == 2


# Ends.


@on_cluster(shards=6)
async def test_the_shards_of_a_member_that_dies_are_taken_when_its_lease_ends(
    cluster: Cluster,
) -> None:
    await cluster.start("a", "b", "c")
    await cluster.until(5)
    cluster.kill("b")
    assert await cluster.until(10) <= 3.2


@on_cluster(shards=6)
async def test_a_member_that_stops_hands_over_and_leaves_nothing_behind(cluster: Cluster) -> None:
    await started(cluster, "a", "b", "c")
    assert cluster.loads() == [2, 2, 2]
    b = cluster.nodes.pop("b")
    shards = b.open_shards()
    await cluster.loop.spawn(b.incarnation, b.host.drain())
    owners = cluster.service.state.view.shard_owners
    assert {one.member for one in owners.values()} == {"a", "c"}
    assert len(owners) == 6
    assert await cluster.until(1) <= 0.1
    assert [shard.calls for shard in shards] == [["close", "gone"]] * 2
    assert b.host.counts.handovers == 2
    # Until it is closed it knows where others are.
    assert b.host.view.shard_owners == owners
    await cluster.loop.spawn(b.incarnation, b.host.close())
    view = cluster.service.state.view
    assert {one.name for one in view.members} == {"a", "c"}
    assert not view.draining


@on_cluster(shards=10)
async def test_a_member_that_stops_hands_over_a_few_shards_at_once(cluster: Cluster) -> None:
    (a,) = await started(cluster, "a")
    await cluster.start("b")
    await time_passes(1)
    a.troubles.closing_s = 1
    began_s = cluster.loop.time()
    await cluster.loop.spawn(a.incarnation, a.host.drain())
    assert cluster.loop.time() - began_s < 4
    assert a.closing_most == SETTINGS.constants.leaving_handovers_max


@on_cluster(shards=3)
async def test_the_last_member_closes_its_shards_in_order(cluster: Cluster) -> None:
    (a,) = await started(cluster, "a")
    shards = a.open_shards()
    await cluster.loop.spawn(a.incarnation, a.host.drain())
    assert [shard.calls for shard in shards] == [["close", "gone"]] * 3
    assert not cluster.service.state.view.shard_owners
    assert not cluster.service.state.leases()


@pytest.mark.parametrize("away", ["before", "meanwhile"])
@on_cluster(shards=4)
async def test_a_member_that_stops_without_a_directory_ends_when_its_lease_has(
    cluster: Cluster, away: str
) -> None:
    a, _ = await started(cluster, "a", "b")
    shards = a.open_shards()
    if away == "before":
        a.troubles.cut = True
    else:
        a.troubles.closing_s = 1.0
    draining = cluster.loop.spawn(a.incarnation, a.host.drain())
    await time_passes(0.5)
    a.troubles.cut = True
    began_s = cluster.loop.time()
    assert await draining == "the directory does not answer"
    # It is silent after two thirds of its lease, and waits for a lease's duration then.
    assert cluster.loop.time() - began_s <= 5.1
    del cluster.nodes["a"]
    await cluster.loop.spawn(a.incarnation, a.host.close())
    ends = {tuple(shard.calls) for shard in shards}
    assert ends == ({("abandon", "gone")} if away == "before" else {("close", "gone")})
    assert await cluster.until(10) <= 3.2
    assert set(cluster.served().values()) == {"b"}


@on_cluster(shards=4)
async def test_a_member_is_silent_and_ends_when_the_directory_went_back(cluster: Cluster) -> None:
    a, _ = await started(cluster, "a", "b")
    shards = a.open_shards()
    failures: list[ClusterDirectoryWentBack] = []
    a.host.on_failure.append(failures.append)
    error = ClusterDirectoryWentBack("restored")
    a.link.raises = error
    await time_passes(1.1)
    assert not a.host.may_speak()
    assert a.speech == [True, False]
    assert {tuple(shard.calls) for shard in shards} == {("abandon", "gone")}
    # What the directory says later does not count.
    a.link.raises = None
    await time_passes(5)
    assert failures == [error]
    assert a.open_shards() == []
    del cluster.nodes["a"]
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert await cluster.until(5) <= 3.2


@on_cluster(shards=2)
async def test_a_lease_that_is_granted_after_the_end_is_not_taken_up(cluster: Cluster) -> None:
    """The directory went back while the answer was under way: nothing that it says counts."""
    (a,) = await cluster.start("a")
    a.troubles.answer_delay_s = 0.3
    await time_passes(0.1)
    a.host.went_back(ClusterDirectoryWentBack("restored"))
    await time_passes(0.5)
    assert cluster.service.state.leases()
    assert a.speech == []
    assert not a.host.joined
    # It is given back, so that nobody waits for its end.
    del cluster.nodes["a"]
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert not cluster.service.state.leases()


@on_cluster(shards=4)
async def test_a_member_that_stops_hands_over_though_the_directory_was_away_for_a_moment(
    cluster: Cluster,
) -> None:
    a, _ = await started(cluster, "a", "b")
    shards = a.open_shards()
    a.troubles.cut = True
    draining = cluster.loop.spawn(a.incarnation, a.host.drain())
    await time_passes(1.0)
    a.troubles.cut = False
    assert await draining == ""
    assert {tuple(shard.calls) for shard in shards} == {("close", "gone")}


@on_cluster(shards=5)
async def test_a_member_that_stops_waits_for_handovers_as_long_as_it_is_told(
    cluster: Cluster,
) -> None:
    (a,) = await cluster.start(
        "a", settings=host_settings(handover_ms_max=20_000, leaving_ms_max=20_000)
    )
    await cluster.until(5)
    a.troubles.closing_s = 15
    shards = a.open_shards()
    began_s = cluster.loop.time()
    reason = await cluster.loop.spawn(a.incarnation, a.host.drain())
    assert reason == "it took longer than 20000 ms"
    assert cluster.loop.time() - began_s == pytest.approx(20, abs=0.1)
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert [shard.calls for shard in shards] == [["close", "gone"]] * 4 + [
        ["close", "abandon", "gone"]
    ]


@on_cluster(shards=3)
async def test_a_server_that_is_closed_abandons_first_and_gives_its_lease_back_then(
    cluster: Cluster,
) -> None:
    a, _ = await started(cluster, "a", "b")
    a.troubles.abandoning_s = 0.5
    shards = a.open_shards()
    del cluster.nodes["a"]
    closing = cluster.loop.spawn(a.incarnation, a.host.close())
    await time_passes(0.4)
    assert a.open_shards()
    assert A in cluster.service.state.view.members
    await closing
    assert {tuple(shard.calls) for shard in shards} == {("abandon", "gone")}
    assert await cluster.until(1) < 0.2


@on_cluster(shards=1)
async def test_a_server_that_is_closed_waits_for_a_shard_that_is_let_go_of_already(
    cluster: Cluster,
) -> None:
    """The shard had failed, and is lost besides when the lease is given up."""
    a, _ = await started(cluster, "a", "b")
    if owner(cluster) != "a":
        a = cluster.nodes["b"]
    del cluster.nodes[a.name]
    a.troubles.abandoning_s = 3.0
    (shard,) = a.open_shards()
    shard.end()
    await time_passes(0.1)
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert shard.calls == ["abandon", "gone"]


@on_cluster(shards=1)
async def test_a_shard_is_not_opened_again_while_its_member_lets_go_of_it(
    cluster: Cluster,
) -> None:
    """The lease ends meanwhile, and the member could have the shard at once under the next one."""
    (a,) = await started(cluster, "a")
    a.troubles.abandoning_s = 4.0
    (shard,) = a.open_shards()
    shard.end()
    await time_passes(0.1)
    lease = a.host.lease
    assert lease is not None
    assert lease.id is not None
    cluster.service.state.revoke(lease.id)
    a.host._keeper.expired(lease.id)
    await time_passes(3.5)
    assert a.host.joined
    assert a.open_shards() == [shard]
    assert a.host.shards[FIRST].phase is ShardPhase.LOST
    assert await cluster.until(2) < 1
    assert shard.calls == ["abandon", "gone"]


@on_cluster(shards=3)
async def test_a_server_that_is_closed_while_it_opens_and_hears_nobody_ends_in_time(
    cluster: Cluster,
) -> None:
    await cluster.start("a")
    a = cluster.nodes.pop("a")
    a.troubles.opening_s = 1_000
    await time_passes(1)
    a.troubles.cut = True
    began_s = cluster.loop.time()
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert cluster.loop.time() - began_s <= 3
    assert cluster.judge.open == {}


@on_cluster(shards=3)
async def test_a_member_that_stops_while_it_opens_does_not_wait_for_that(cluster: Cluster) -> None:
    """A new store of a coordinator asks brokers, and they may have stopped, too."""
    await cluster.start("a")
    a = cluster.nodes.pop("a")
    a.troubles.opening_s = 1_000
    await time_passes(1)
    began_s = cluster.loop.time()
    await cluster.loop.spawn(a.incarnation, a.host.drain())
    assert cluster.loop.time() - began_s < 1
    assert cluster.judge.open == {}
    assert not cluster.service.state.view.shard_owners
    await cluster.loop.spawn(a.incarnation, a.host.close())


@on_cluster(shards=3)
async def test_a_drain_that_cannot_end_may_be_given_up(cluster: Cluster) -> None:
    (a,) = await started(cluster, "a")
    a.troubles.closing_s = 10_000
    draining = cluster.loop.spawn(a.incarnation, a.host.drain())
    await time_passes(20)
    assert not draining.done()
    draining.cancel()
    await cluster.loop.spawn(a.incarnation, a.host.close())
    assert cluster.judge.open == {}


# The lease.


@on_cluster(shards=4)
async def test_a_member_without_answers_is_silent_and_its_shards_end_when_it_hears_so(
    cluster: Cluster,
) -> None:
    a, b = await started(cluster, "a", "b")
    assert a.speech == [True]
    mine = a.open_shards()
    a.troubles.cut = True
    await time_passes(2.05)
    assert a.speech == [True, False]
    assert not a.host.may_speak()
    assert not any(one.ownership.may_speak() for one in mine)
    assert await cluster.until(5) < 2
    assert len(b.open_shards()) == 4
    # It cannot know yet that they are lost.
    assert [one.calls for one in mine] == [[], []]
    a.troubles.cut = False
    await time_passes(3)
    assert [one.calls for one in mine] == [["abandon", "gone"]] * 2
    assert a.speech == [True, False, True]
    # The member has another lease. Its former ownerships are over nevertheless.
    assert a.host.may_speak()
    assert not any(one.ownership.may_speak() for one in mine)
    await time_passes(15)
    assert cluster.loads() == [2, 2]


@on_cluster(shards=2)
async def test_a_lease_that_turns_out_to_be_alive_costs_a_moment_of_silence(
    cluster: Cluster,
) -> None:
    a, _ = await started(cluster, "a", "b")
    openings = len(cluster.judge.openings)
    # Requests arrive, and answers are lost.
    a.troubles.answer_lost = 1.0
    await time_passes(10)
    assert a.speech == [True, False]
    a.troubles.answer_lost = 0.0
    await time_passes(2.5)
    assert a.speech == [True, False, True]
    assert len(cluster.judge.openings) == openings
    assert len(cluster.served()) == 2
    assert a.host.leases_lost == 0
    assert a.host.renewals_failed > 5


@on_cluster(shards=1)
async def test_a_member_may_speak_from_when_it_sent_the_renewal_and_not_from_the_answer(
    cluster: Cluster,
) -> None:
    (a,) = await started(cluster, "a")
    a.troubles.answer_delay_s = 0.9
    await time_passes(5)
    renewals = sum(isinstance(request, Renew) for request in a.link.requests)
    while sum(isinstance(request, Renew) for request in a.link.requests) == renewals:
        await time_passes(0.001)
    sent_s = cluster.loop.time()
    await time_passes(0.001)
    a.troubles.request_lost = 1.0
    while a.host.may_speak():
        await time_passes(0.001)
    assert cluster.loop.time() - sent_s == pytest.approx(2.0, abs=0.005)


@on_cluster(shards=1)
async def test_a_grant_counts_from_when_it_was_asked_for(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    a.troubles.answer_delay_s = 1.9
    a.troubles.delay_s = 0.0
    await time_passes(1.95)
    a.troubles.cut = True
    assert a.host.may_speak()
    await time_passes(0.1)
    assert not a.host.may_speak()


@on_cluster(shards=1)
async def test_no_renewal_waits_for_the_answer_to_another_one(cluster: Cluster) -> None:
    (a,) = await started(cluster, "a")
    a.troubles.answer_delay_s = 0.9
    await time_passes(30)
    assert a.speech == [True]


def test_a_name_that_is_taken_is_asked_for_until_its_lease_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        cluster = Cluster(shards=2)
        await started(cluster, "a")
        cluster.kill("a")
        await cluster.start("a")
        await time_passes(1)
        assert not cluster.nodes["a"].host.joined
        assert await cluster.until(10) < 4
        assert cluster.nodes["a"].host.leases_lost == 0
        await cluster.end()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert caplog.text.count("the name a is taken") == 1


@on_cluster(shards=2)
async def test_a_row_that_somebody_deleted_is_written_again(cluster: Cluster) -> None:
    await started(cluster, "a")
    delete_row(cluster.service.state, A)
    await cluster.admin.pin(FIRST, "")
    await time_passes(1)
    assert A in cluster.service.state.view.members
    assert len(cluster.served()) == 2


@on_cluster(shards=2)
async def test_a_row_that_was_written_late_is_written_again(cluster: Cluster) -> None:
    """It says what the member has taken back since, and nothing else would happen to it."""
    (a,) = await started(cluster, "a")
    lease = a.host.lease
    assert lease is not None
    assert lease.id is not None
    joins = sum(isinstance(request, Join) for request in a.link.requests)
    late = Member(address="a:6650", refused=(0, 1))
    assert await cluster.admin.join(lease.id, A, late)
    await time_passes(1)
    assert cluster.service.state.view.members[A] == Member(address="a:6650")
    # Once is enough.
    assert sum(isinstance(request, Join) for request in a.link.requests) == joins + 1
    await time_passes(5)
    assert sum(isinstance(request, Join) for request in a.link.requests) == joins + 1


# Openings, handovers, and shards that fail.


@on_cluster(shards=4)
async def test_an_opening_that_takes_long_holds_up_neither_the_lease_nor_other_shards(
    cluster: Cluster,
) -> None:
    (a,) = await cluster.start("a")
    a.slow[FIRST] = 30.0
    await time_passes(5)
    assert len(cluster.served()) == 3
    assert a.host.shards[FIRST].phase is ShardPhase.OPENING
    assert a.host.leases_lost == 0
    assert await cluster.until(30) > 20


@on_cluster(shards=1)
async def test_the_opening_of_a_shard_that_is_lost_ends(cluster: Cluster) -> None:
    """It may wait for another server's answer, which it may not ask for any more."""
    (a,) = await cluster.start("a")
    a.slow[FIRST] = 1_000_000.0
    await time_passes(1)
    (b,) = await cluster.start("b")
    a.troubles.cut = True
    await time_passes(6)
    assert owner(cluster) == "b"
    a.troubles.cut = False
    await time_passes(1)
    assert a.open_shards() == []
    assert a.host.shards == {}
    # It can have the shard again.
    a.slow.clear()
    await b.host.drain()
    await time_passes(5)
    assert [one.ownership.shard for one in a.open_shards()] == [FIRST]


@on_cluster(shards=1)
async def test_the_opening_of_a_shard_that_is_lost_at_once_ends(cluster: Cluster) -> None:
    """A task that is cancelled before its first step never gets as far as to say so."""
    (a,) = await cluster.start("a")

    def lose() -> None:
        if FIRST in a.host.shards and a.host.shards[FIRST].phase is ShardPhase.OPENING:
            a.host.on_change.remove(lose)
            lease = a.host.lease
            assert lease is not None
            assert lease.id is not None
            cluster.service.state.revoke(lease.id)
            a.host._keeper.expired(lease.id)

    a.host.on_change.append(lose)
    assert await cluster.until(5) < 1
    assert a.host.leases_lost == 1
    assert len(cluster.judge.openings) == 1


@on_cluster(shards=1)
async def test_a_claim_whose_answer_comes_after_silence_opens_nothing(cluster: Cluster) -> None:
    """Opening fences whoever has the shard: it may be somebody else's by then."""
    (a,) = await cluster.start("a")
    on_joining(a, answer_delay_s=20.0)
    await time_passes(0.01)
    assert owner(cluster) == "a"
    # Nor does it see who has it by then.
    a.troubles.request_lost = 1.0
    a.troubles.watch_breaks = 1.0
    await cluster.start("b")
    await time_passes(10)
    assert owner(cluster) == "b"
    await time_passes(15)
    assert [member for member, _, _ in cluster.judge.openings] == ["b"]


@on_cluster(shards=1)
async def test_a_claim_that_is_answered_in_a_silence_nobody_has_heard_of_is_opened(
    cluster: Cluster,
) -> None:
    """The answers to a claim and to a renewal come at once, before the timer of the silence."""
    (a,) = await cluster.start("a")
    answers = cluster.loop.create_future()
    ask = a.link.ask

    async def slow(request: Request[object]) -> object:
        answer = await ask(request)
        if isinstance(request, Claim | Renew):
            await answers
        return answer

    def answer() -> None:
        answers.set_result(None)
        # Whatever else runs in this turn of the event loop takes until after the last word.
        cluster.loop._now += 0.1

    a.link.ask = slow  # type: ignore[method-assign, assignment]
    cluster.loop.call_later(1.95, answer)
    await time_passes(2.5)
    assert a.host.may_speak()
    assert a.host.leases_lost == 0
    assert set(cluster.served()) == {FIRST}
    assert a.speech == [True, False, True]


@on_cluster(shards=3)
async def test_pauses_grow_while_a_shard_cannot_be_opened_and_others_are_served(
    cluster: Cluster,
) -> None:
    (a,) = await cluster.start("a")
    a.broken.add(FIRST)
    await time_passes(300)
    assert len(cluster.served()) == 2
    status = a.host.shards[FIRST]
    assert status.reason == "no such bucket"
    assert status.failures == a.host.counts.openings_failed
    # Half a second, doubled up to half a minute.
    assert 12 <= status.failures <= 25
    a.broken.clear()
    assert await cluster.until(31) > 0
    assert a.host.shards[FIRST].reason == ""


@on_cluster(shards=1)
async def test_pauses_grow_while_a_shard_ends_as_soon_as_it_is_open(cluster: Cluster) -> None:
    (a,) = await started(cluster, "a")
    for _ in range(600):
        await time_passes(0.5)
        for shard in a.open_shards():
            shard.end()
    assert 12 <= a.host.counts.failed <= 25
    assert a.host.counts.failed == len(cluster.judge.openings) - len(cluster.judge.open)
    # One that has served for long begins with a short pause again.
    await cluster.until(31)
    await time_passes(40)
    a.open_shards()[0].end()
    assert await cluster.until(2) < 1


@on_cluster(shards=1)
async def test_a_shard_that_ends_before_it_is_open_is_not_served(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    a.ends_early.add(FIRST)
    await time_passes(0.3)
    assert a.ended == [["abandon", "gone"]]
    a.ends_early.clear()
    assert await cluster.until(2) < 1


@on_cluster(shards=2)
async def test_a_shard_whose_row_is_gone_is_abandoned_without_a_last_write(
    cluster: Cluster,
) -> None:
    (a,) = await started(cluster, "a")
    lost = a.shard(FIRST)
    # Nobody may do this; somebody may have done it by hand.
    cluster.service.state.release(FIRST, lost.ownership.epoch)
    claimed = cluster.service.state.claim(1, FIRST, "a")
    assert claimed != lost.ownership.epoch
    cluster.judge.forget(lost)
    await cluster.admin.pin(FIRST, "")
    await time_passes(0.5)
    assert lost.calls == ["abandon", "gone"]
    # The row that it knows nothing of is given back, and the shard claimed anew.
    assert await cluster.until(2) < 1
    assert a.shard(FIRST).ownership.epoch > (claimed or 0)


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
@on_cluster(shards=2)
async def test_a_shard_that_does_not_close_is_abandoned_and_moves_nevertheless(
    cluster: Cluster, trouble: str
) -> None:
    await started(cluster, "a", "b")
    was = owner(cluster)
    node = cluster.nodes[was]
    if trouble == "hangs":
        node.troubles.closing_s = 10_000
        node.troubles.abandoning_s = 10_000
    else:
        node.troubles.closing_fails = 1.0
    await cluster.admin.pin(FIRST, other(cluster, was))
    await time_passes(65 if trouble == "hangs" else 1)
    assert owner(cluster) == other(cluster, was)
    assert node.host.counts.handovers == 0


@on_cluster(shards=2)
async def test_a_shard_that_fails_while_it_is_handed_over_moves_nevertheless(
    cluster: Cluster,
) -> None:
    await started(cluster, "a", "b")
    was = owner(cluster)
    node = cluster.nodes[was]
    shard = node.shard(FIRST)
    node.troubles.closing_s = 10.0
    await cluster.admin.pin(FIRST, other(cluster, was))
    await time_passes(1)
    assert shard.calls == ["close"]
    shard.end()
    await time_passes(1)
    assert shard.calls == ["close", "abandon", "gone"]
    assert owner(cluster) == other(cluster, was)


# Lost answers, and watches that break.


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("a bug")])
@on_cluster(shards=2)
async def test_whatever_a_directory_raises_is_asked_again(
    cluster: Cluster, error: BaseException
) -> None:
    (a,) = await cluster.start("a")
    a.link.raises = error
    await time_passes(3)
    a.link.raises = None
    assert await cluster.until(5) < 2
    # A claim, a watch, a release: each is under way when it comes.
    a.link.raises = error
    await cluster.admin.pin(FIRST, "nobody")
    a.shard(FIRST).end()
    await time_passes(1.5)
    a.link.raises = None
    assert await cluster.until(5) < 2
    await time_passes(1)
    assert a.host.view == cluster.service.state.view
    assert a.host.leases_lost == 0


@pytest.mark.parametrize("moment", ["open", "close", "abandon"])
@on_cluster(shards=2)
async def test_a_shard_whose_work_is_cancelled_from_within_is_no_stuck_one(
    cluster: Cluster, moment: str
) -> None:
    await cluster.start("a", "b")
    for node in cluster.nodes.values():
        node.cancelled.add(moment)
    await time_passes(40)
    for node in cluster.nodes.values():
        for shard in node.open_shards():
            shard.end()
    await time_passes(1)
    for node in cluster.nodes.values():
        node.cancelled.clear()
    assert await cluster.until(40) >= 0


@on_cluster(shards=2)
async def test_a_listener_that_fails_ends_nothing(cluster: Cluster) -> None:
    heard = []
    cluster.loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
    (a,) = await cluster.start("a")

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    a.host.on_view.append(fail)
    a.host.on_speech.append(fail)
    a.host.on_change.append(fail)
    assert await cluster.until(5) < 1
    assert set(heard) == {"a listener of the cluster failed"}
    assert a.host.view == cluster.service.state.view


@on_cluster(shards=1)
async def test_a_claim_whose_answer_was_lost_is_repeated(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    on_joining(a, answer_lost=1.0)
    await time_passes(1.5)
    a.troubles.answer_lost = 0.0
    assert await cluster.until(5) < 2
    claims = [request for request in a.link.requests if isinstance(request, Claim)]
    assert len(claims) > 1
    assert len({claim.lease for claim in claims}) == 1
    # It opens what it got at first, rather than give that back and begin again.
    assert not any(isinstance(request, Release) for request in a.link.requests)
    assert len(cluster.judge.openings) == 1


@on_cluster(shards=1)
async def test_a_claim_that_arrives_late_is_given_back(cluster: Cluster) -> None:
    """Its sender knows nothing of it, and nobody else may have the shard while the lease lives."""
    await started(cluster, "a", "b")
    name = other(cluster, owner(cluster))
    was = owner(cluster)
    await cluster.start(name + "2")
    await time_passes(1)
    view = cluster.service.state.view
    held = view.shard_owners[FIRST]
    # The owner gives the shard up, and a late claim of somebody else's is faster than the wish.
    node = cluster.nodes[was]
    await cluster.admin.pin(FIRST, was)
    node.shard(FIRST).end()
    while FIRST in cluster.service.state.view.shard_owners:
        await time_passes(0.001)
    lease = cluster.nodes[name].host.lease
    assert lease is not None
    assert lease.id is not None
    epoch = await cluster.admin.claim(lease.id, FIRST, name)
    assert epoch is not None
    assert await cluster.until(10) < 5
    assert owner(cluster) == was
    assert held.epoch < epoch < cluster.service.state.view.shard_owners[FIRST].epoch


@on_cluster(shards=2)
async def test_a_broken_watch_begins_anew_and_the_last_view_stays(cluster: Cluster) -> None:
    a, _ = await started(cluster, "a", "b")
    owners = dict(a.host.view.shard_owners)
    assert a.host.view_age_ms() == 0
    views: list[View] = []
    a.host.on_view.append(views.append)
    a.troubles.watch_breaks = 1.0
    await cluster.admin.drain(MemberName(BROKER, "x"), draining=True)
    await time_passes(10)
    assert a.host.view.shard_owners == owners
    assert not views
    assert a.host.view_age_ms() > 9_000
    assert len(cluster.served()) == 2
    a.troubles.watch_breaks = 0.0
    await time_passes(1.1)
    assert a.host.view == cluster.service.state.view
    assert views
    assert a.host.view_age_ms() == 0


@on_cluster(shards=2)
async def test_members_begin_while_the_directory_is_away(cluster: Cluster) -> None:
    (a,) = await cluster.start("a")
    a.troubles.cut = True
    await time_passes(60)
    a.troubles.cut = False
    assert await cluster.until(10) < 4


@on_cluster(shards=2)
async def test_a_view_wakes_whoever_watches(cluster: Cluster) -> None:
    await cluster.admin.pin(FIRST, "a")
    async with aclosing(cluster.admin.watch()) as views:
        assert (await anext(views)).pins == {FIRST: "a"}
        following = asyncio.ensure_future(anext(views))
        await time_passes(1)
        assert not following.done()
        await cluster.admin.pin(FIRST, "b")
        assert (await following).pins == {FIRST: "b"}
    assert now_ms() == 1_000


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        replace(SETTINGS, lease_duration_ms=2_500)
    with pytest.raises(ValueError, match="leaving_ms_max must be positive"):
        replace(SETTINGS, leaving_ms_max=0)
    assert replace(SETTINGS, settling_ms=0).settling_ms == 0


def test_a_handover_never_has_longer_than_a_member_that_stops() -> None:
    assert SETTINGS.handover_ms_max == SETTINGS.constants.handover_ms_max
    assert replace(SETTINGS, leaving_ms_max=20_000).handover_ms_max == 20_000
