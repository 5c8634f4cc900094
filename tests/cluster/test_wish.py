"""docs/design/0009-owners.md, Placement of shards: the wish."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from magnetar_cluster.directory.wish import _Ring, may_differ, spread, wish

NAMES = [f"member-{letter}" for letter in "abcdef"]
SHARDS = st.integers(0, 12).map(
    lambda count: Format(broker_shards=count, coordinator_shards=1).shards(BROKER)
)


def view_of(
    members: list[str],
    *,
    draining: frozenset[str] = frozenset(),
    leaving: frozenset[str] = frozenset(),
    pins: dict[ShardName, str] | None = None,
) -> View:
    return View(
        revision=1,
        members={
            MemberName(BROKER, member): Member(address=f"{member}:6650", leaving=member in leaving)
            for member in members
        },
        draining=frozenset(MemberName(BROKER, one) for one in draining),
        pins=pins or {},
    )


@st.composite
def views(draw: st.DrawFn) -> tuple[View, tuple[ShardName, ...]]:
    shards = draw(SHARDS)
    some = st.lists(st.sampled_from(NAMES), unique=True)
    pinned = (
        draw(st.dictionaries(st.sampled_from(shards), st.sampled_from(NAMES))) if shards else {}
    )
    view = view_of(
        draw(some),
        draining=frozenset(draw(some)),
        leaving=frozenset(draw(some)),
        pins=pinned,
    )
    return view, shards


def able(view: View) -> set[str]:
    return {
        name.name
        for name, member in view.members.items()
        if name not in view.draining and not member.leaving
    }


@given(views())
def test_every_shard_has_a_live_member_that_stays_if_there_is_one(
    given_view: tuple[View, tuple[ShardName, ...]],
) -> None:
    view, shards = given_view
    found = wish(view, shards)
    assert set(found.values()) <= able(view)
    assert set(found) == (set(shards) if able(view) else set())


@given(views())
def test_a_pin_comes_before_the_rest_if_its_member_is_there(
    given_view: tuple[View, tuple[ShardName, ...]],
) -> None:
    view, shards = given_view
    found = wish(view, shards)
    for shard, member in view.pins.items():
        assert found.get(shard) == member or member not in able(view)


@given(views())
def test_no_move_of_a_shard_without_a_pin_makes_it_more_even(
    given_view: tuple[View, tuple[ShardName, ...]],
) -> None:
    view, shards = given_view
    found = wish(view, shards)
    loads = Counter({one: 0 for one in able(view)})
    loads.update(found.values())
    for shard, member in found.items():
        if view.pins.get(shard) != member:
            assert loads[member] - min(loads.values()) <= 1


@given(views(), st.randoms())
def test_order_means_nothing(
    given_view: tuple[View, tuple[ShardName, ...]], random: Random
) -> None:
    view, shards = given_view
    members = list(view.members.items())
    random.shuffle(members)
    shuffled = list(shards)
    random.shuffle(shuffled)
    again = View(
        revision=7, members=dict(members), draining=view.draining, pins=view.pins, shard_owners={}
    )
    assert wish(again, shuffled) == wish(view, shards)


@given(views(), views())
def test_views_that_may_not_differ_wish_the_same(
    one: tuple[View, tuple[ShardName, ...]], other: tuple[View, tuple[ShardName, ...]]
) -> None:
    (before, shards), (after, _) = one, other
    assert may_differ(before, after) or wish(before, shards) == wish(after, shards)


def test_owners_change_and_the_wish_stays() -> None:
    """Else each of a thousand claims would cost each member a wish."""
    before = view_of(NAMES)
    shards = Format(broker_shards=8, coordinator_shards=1).shards(BROKER)
    after = replace(before, revision=2, shard_owners={shards[0]: ShardOwner(NAMES[0], 2)})
    assert not may_differ(before, after)
    assert wish(before, shards) == wish(after, shards)
    assert may_differ(before, view_of(NAMES[1:]))
    assert may_differ(before, replace(before, draining=frozenset({MemberName(BROKER, NAMES[0])})))
    assert may_differ(before, replace(before, pins={shards[0]: NAMES[0]}))


def test_members_of_another_kind_have_no_part() -> None:
    view = View(
        members={
            MemberName(BROKER, "a"): Member(address="a:1"),
            MemberName(COORDINATOR, "b"): Member(address="b:1"),
        }
    )
    shards = Format(broker_shards=3, coordinator_shards=2)
    assert set(wish(view, shards.shards(BROKER)).values()) == {"a"}
    assert set(wish(view, shards.shards(COORDINATOR)).values()) == {"b"}


def moves(shard_count: int, member_count: int) -> float:
    """How many shards move when a member comes, on average over names. As many when it goes."""
    shards = Format(broker_shards=shard_count, coordinator_shards=1).shards(BROKER)
    total = 0
    for sample in range(40):
        members = [f"{sample}-{number}" for number in range(member_count + 1)]
        before = spread(shards, members[1:], {})
        after = spread(shards, members, {})
        total += sum(before[shard] != after[shard] for shard in shards)
    return total / 40


def test_few_shards_move_when_a_member_comes_or_goes() -> None:
    """The page has these numbers. Moves that have to be: 2 of 8, 3 of 16, 12 of 64."""
    assert moves(8, 3) <= 3
    assert moves(16, 4) <= 4.3
    assert moves(64, 4) <= 15.8


def test_a_thousand_members_look_at_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All two million pairs took 6 s, which is longer than a lease."""
    looked = 0
    after = _Ring.after

    def counted(ring: _Ring, distance: int, place: int) -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return after(ring, distance, place)

    monkeypatch.setattr(_Ring, "after", counted)
    shards = Format(broker_shards=2_048, coordinator_shards=1).shards(BROKER)
    found = spread(shards, [f"member-{number}" for number in range(1_000)], {})
    assert set(Counter(found.values()).values()) == {2, 3}
    assert looked < 20_000
