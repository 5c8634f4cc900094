"""The assignor: every partition goes to a member, evenly, and moves as little as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.assignment.assignment import assign
from magnetar_core.ids import PartitionName

A = frozenset({1})
BOTH = frozenset({1, 2})


def partitions(count: int, topic_id: int = 1) -> list[PartitionName]:
    return [PartitionName(f"t{topic_id}", number, topic_id) for number in range(count)]


def loads(target: dict[PartitionName, str], members: list[str]) -> list[int]:
    return sorted(sum(taker == member for taker in target.values()) for member in members)


def test_spreads_evenly() -> None:
    members = ["a", "b", "c"]
    target = assign(partitions(16), dict.fromkeys(members, A), {})
    assert loads(target, members) == [5, 5, 6]


def test_a_new_member_gets_its_share_and_nothing_else_moves() -> None:
    before = assign(partitions(16), dict.fromkeys("abc", A), {})
    after = assign(partitions(16), dict.fromkeys("abcd", A), before)
    moved = [one for one in before if before[one] != after[one]]
    assert len(moved) == 4
    assert {after[one] for one in moved} == {"d"}


def test_what_a_member_leaves_goes_to_the_others_and_nothing_else_moves() -> None:
    before = assign(partitions(16), dict.fromkeys("abcd", A), {})
    after = assign(partitions(16), dict.fromkeys("abc", A), before)
    assert all(after[one] == before[one] for one in before if before[one] != "d")
    assert loads(after, ["a", "b", "c"]) == [5, 5, 6]


def test_who_does_not_want_a_topic_does_not_get_it() -> None:
    everything = partitions(4, 1) + partitions(4, 2)
    target = assign(everything, {"a": A, "b": BOTH}, {})
    assert {taker for one, taker in target.items() if one.topic_id == 2} == {"b"}
    assert {taker for one, taker in target.items() if one.topic_id == 1} == {"a"}


def test_more_members_than_partitions() -> None:
    target = assign(partitions(2), dict.fromkeys("abcd", A), {})
    assert loads(target, list("abcd")) == [0, 0, 1, 1]


def test_nobody() -> None:
    assert assign(partitions(2), {}, {}) == {}


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    wants=st.lists(st.frozensets(st.integers(1, 3)), max_size=8),
    data=st.data(),
)
def test_no_move_makes_it_more_even(
    counts: list[int], wants: list[frozenset[int]], data: st.DataObject
) -> None:
    everything = [
        one for topic_id, count in enumerate(counts, 1) for one in partitions(count, topic_id)
    ]
    wanted = {f"m{number}": topics for number, topics in enumerate(wants)}
    owners = {
        one: data.draw(st.sampled_from([*wanted, "departed"]))
        for one in everything
        if data.draw(st.booleans())
    }
    target = assign(everything, wanted, owners)
    load = {one: sum(taker == one for taker in target.values()) for one in wanted}
    for partition in everything:
        takers = [one for one in wanted if partition.topic_id in wanted[one]]
        assert (partition in target) == bool(takers)
        if takers:
            owner = target[partition]
            assert owner in takers
            assert load[owner] - min(load[taker] for taker in takers) < 2
    assert assign(everything, wanted, target) == target, "what is even stays as it is"
