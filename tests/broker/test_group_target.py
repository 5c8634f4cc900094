"""Groups at several brokers: whatever each of them hosts, together they assign one target."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.assignment.assignment import assign, preferred
from magnetar_broker.assignment.group import Group, Member
from magnetar_broker.assignment.group_target import Interest
from magnetar_core.ids import MemberName, PartitionName

TOPIC_IDS = (1, 2, 3)


def partitions(count: int, topic_id: int = 1) -> list[PartitionName]:
    return [PartitionName(f"t{topic_id}", number, topic_id) for number in range(count)]


def newcomer(member_id: str, instance_id: str = "") -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
    )


class Broker:
    """A broker's groups, as far as the target goes: its group, and what it hosts."""

    def __init__(self, everything: list[PartitionName], hosted: frozenset[PartitionName]) -> None:
        self.group = Group("g")
        self.everything = tuple(everything)
        self.hosted = None if len(hosted) == len(everything) else hosted

    def interest(self, wants: dict[str, frozenset[int]]) -> Interest:
        wanted = frozenset[int]().union(*wants.values())
        kept = tuple(one for one in self.everything if one.topic_id in wanted)
        hosted = None if self.hosted is None else self.hosted.intersection(kept)
        return Interest(kept, wants, hosted)

    def join(self, member: Member, wants: dict[str, frozenset[int]]) -> None:
        present = [*self.group.members, member.member_id]
        self.group.join(member, self.interest({one: wants[one] for one in present}), 0)
        self.group.check()

    def leave(self, member_id: str, wants: dict[str, frozenset[int]]) -> None:
        left = {one: wants[one] for one in self.group.members if one != member_id}
        self.group.leave(MemberName(member_id), self.interest(left), 0)
        self.group.check()


def split(
    everything: list[PartitionName], count: int, data: st.DataObject
) -> list[frozenset[PartitionName]]:
    hosts = [data.draw(st.integers(0, count - 1)) for _ in everything]
    return [
        frozenset(one for one, host in zip(everything, hosts, strict=True) if host == number)
        for number in range(count)
    ]


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    brokers=st.integers(2, 4),
    members=st.lists(st.frozensets(st.sampled_from(TOPIC_IDS), min_size=1), min_size=1, max_size=7),
    data=st.data(),
)
def test_what_all_brokers_assign_is_one_even_target(
    counts: list[int], brokers: int, members: list[frozenset[int]], data: st.DataObject
) -> None:
    """Each broker has its own history: members come in another order, and one comes and goes."""
    everything = [
        one
        for topic_id, count in zip(TOPIC_IDS, counts, strict=False)
        for one in partitions(count, topic_id)
    ]
    wants = {f"m{number}": topics for number, topics in enumerate(members)}
    wants["passing"] = frozenset(TOPIC_IDS)
    target: dict[PartitionName, str] = {}
    parts = split(everything, brokers, data)
    for hosted in parts:
        broker = Broker(everything, hosted)
        order = data.draw(st.permutations(sorted(wants)))
        for member_id in order:
            broker.join(newcomer(member_id), wants)
        broker.leave("passing", wants)
        assert broker.group.target.keys() <= hosted
        assert not broker.group.target.keys() & target.keys()
        target.update(broker.group.target)
    del wants["passing"]
    load = {one: sum(taker == one for taker in target.values()) for one in wants}
    for partition in everything:
        takers = [one for one in wants if partition.topic_id in wants[one]]
        assert (partition in target) == bool(takers), "wanted, and nobody assigns it"
        if takers:
            assert target[partition] in takers
            assert load[target[partition]] - min(load[taker] for taker in takers) < 2


@given(
    names=st.lists(st.text(max_size=5), min_size=1, max_size=6, unique=True),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    data=st.data(),
)
def test_who_is_preferred_depends_on_names_alone(
    names: list[str], counts: list[int], data: st.DataObject
) -> None:
    everything = [
        one
        for topic_id, count in zip(TOPIC_IDS, counts, strict=False)
        for one in partitions(count, topic_id)
    ]
    wants = {name: data.draw(st.frozensets(st.sampled_from(TOPIC_IDS))) for name in names}
    found = preferred(everything, wants)
    again = preferred(
        data.draw(st.permutations(everything)),
        {one: wants[one] for one in data.draw(st.permutations(names))},
    )
    assert found == again
    for partition in everything:
        takers = [name for name in names if partition.topic_id in wants[name]]
        assert (partition in found) == bool(takers)
        # Who goes leaves its own, and nothing else moves.
        for gone in names:
            rest = {one: topics for one, topics in wants.items() if one != gone}
            if found.get(partition) not in (None, gone):
                assert preferred(everything, rest)[partition] == found[partition]


def test_a_static_members_next_self_gets_the_same_partitions_at_each_broker() -> None:
    everything = partitions(16)
    wants = dict.fromkeys(("old-a", "old-b", "z-new-a", "zz", "c"), frozenset({1}))
    for number in range(4):
        broker = Broker(everything, frozenset(everything[number::4]))
        for member_id, instance_id in (("old-a", "a"), ("old-b", "b"), ("c", ""), ("zz", "")):
            broker.join(newcomer(member_id, instance_id), wants)
        before = dict(broker.group.target)
        renamed = {"old-a": "z-new-a"}
        group = broker.group
        present = ["old-b", "c", "zz", "z-new-a"]
        group.join(
            newcomer("z-new-a", "a"), broker.interest({one: wants[one] for one in present}), 0
        )
        assert group.target == {one: renamed.get(taker, taker) for one, taker in before.items()}


def test_an_instance_id_is_no_member_id() -> None:
    """Whoever chose the id of another as its instance id would take its place in the hash."""
    everything = partitions(16)
    wants = {"a": frozenset({1}), "b": frozenset({1})}
    broker = Broker(everything, frozenset(everything[:8]))
    broker.join(newcomer("a"), wants)
    broker.join(newcomer("b", "a"), wants)
    assert set(broker.group.target.values()) == {"a", "b"}


def moved(count: int, before: int, after: int, seeds: range) -> float:
    """How many partitions change hands on average, when members come or go."""
    total = 0
    for seed in seeds:
        random = Random(seed)
        names = [f"{random.getrandbits(128):032x}" for _ in range(max(before, after))]
        everything = partitions(count, seed + 1)
        targets = []
        for members in (names[:before], names[:after]):
            wants = dict.fromkeys(members, frozenset({seed + 1}))
            targets.append(assign(everything, wants, preferred(everything, wants)))
        total += sum(targets[0][one] != targets[1][one] for one in everything)
    return total / len(seeds)


def test_one_more_member_or_one_less_moves_few() -> None:
    """Four brokers with four partitions each: 3 of 16 would have to move, and 4.8 do."""
    assert moved(16, 4, 5, range(200)) < 5.5
    assert moved(16, 5, 4, range(200)) < 5.5
    assert moved(64, 4, 5, range(50)) < 18
