"""Classic groups: members, generations, timeouts, static members; time is an argument."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.groups.classic_group import ClassicGroup, MemberIdNeeded, State
from magnetar_kafka.groups.group_rows import restored, row_of
from magnetar_kafka.groups.members import Join, Joined, Member, Synced, favourite
from magnetar_kafka.groups.subscriptions import subscribed_topics

SESSION_MS, REBALANCE_MS = 10_000, 60_000


class World:
    """A group, its clients' answers, and the time."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.group = ClassicGroup("g", first_join_delay_ms=delay_ms)
        self.now_ms = 1_000.0
        self.answers: dict[object, Joined | Synced | Refused] = {}
        self._ids = 0

    def pump(self) -> None:
        for ticket, answer in self.group.told():
            assert ticket not in self.answers, "a ticket is answered once"
            self.answers[ticket] = answer
        self.group.check()

    def join(self, ticket: str, member_id: str = "", **more: Any) -> Joined | None:
        self._ids += 1
        asked = {
            "member_id": member_id,
            "instance_id": None,
            "new_member_id": f"m{self._ids}",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", b"r"),),
            **more,
        }
        try:
            return self.group.join(Join(**asked), ticket, self.now_ms)
        finally:
            self.pump()

    def joined(self, ticket: str) -> Joined:
        found = self.answers[ticket]
        assert isinstance(found, Joined), found
        return found

    def sync(
        self, ticket: str, member_id: str, assignments: dict[str, bytes] | None = None, **more: Any
    ) -> Synced | None:
        generation = more.pop("generation", self.group.generation)
        instance_id = more.pop("instance_id", None)
        try:
            return self.group.sync(
                member_id, instance_id, generation, assignments or {}, ticket, self.now_ms, **more
            )
        finally:
            self.pump()

    def code(self, ticket: str) -> ErrorCode:
        found = self.answers[ticket]
        assert isinstance(found, Refused), found
        return found.code

    def pass_time(self, milliseconds: float) -> None:
        """Time passes, and the group is woken whenever it has asked for it."""
        end = self.now_ms + milliseconds
        while (due := self.group.next_deadline_ms) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.group.tick(self.now_ms)
            self.pump()
        self.now_ms = end

    def alive(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.group.heartbeat(member_id, None, self.group.generation, self.now_ms)

    def stable(self, count: int, **more: Any) -> list[str]:
        """Members of a stable group, the leader first."""
        for number in range(count):
            self.join(f"first {number}", **more)
        # All but the first one make the group prepare again; it joins again when it is told.
        while self.is_in(State.PREPARING):
            for member in list(self.group.members.values()):
                if not member.has_joined:
                    self.join(f"again {member.member_id} {self.now_ms}", member.member_id)
            self.now_ms += 1
        members = [self.group.leader_id]
        members += [one for one in self.group.members if one != self.group.leader_id]
        for member_id in members[1:]:
            assert self.sync(f"sync {member_id}", member_id) is None
        self.sync(f"sync {members[0]}", members[0], {one: one.encode() for one in members})
        assert self.is_in(State.STABLE)
        return members

    def is_in(self, state: State) -> bool:
        return self.group.state is state


def refused(code: ErrorCode) -> Any:
    return pytest.raises(Refused, check=lambda error: error.code is code)


def test_members_get_what_their_leader_assigns() -> None:
    world = World()
    world.join("a")
    first = world.joined("a")
    assert (first.generation, first.leader_id, first.member_id) == (1, "m1", "m1")
    assert [one.member_id for one in first.members] == ["m1"]
    world.join("b")
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        world.group.heartbeat("m1", None, 1, world.now_ms)
    world.join("a2", "m1")
    leader, other = world.joined("a2"), world.joined("b")
    assert leader.generation == other.generation == 2
    assert [one.member_id for one in leader.members] == ["m1", "m2"]
    assert (other.leader_id, other.members) == ("m1", ())
    assert world.sync("s2", "m2") is None
    assert "s2" not in world.answers
    world.sync("s1", "m1", {"m1": b"one", "m2": b"two"})
    assert world.answers["s1"] == Synced("consumer", "range", b"one")
    assert world.answers["s2"] == Synced("consumer", "range", b"two")
    # A member that asks once more gets the same.
    assert world.sync("s3", "m2") == Synced("consumer", "range", b"two")


def test_an_empty_group_waits_for_those_who_start_together() -> None:
    world = World(delay_ms=500)
    world.join("a")
    world.pass_time(400)
    world.join("b")
    world.pass_time(499)
    assert not world.answers
    world.pass_time(1)
    assert world.joined("a").generation == world.joined("b").generation == 1


def test_a_client_without_an_id_comes_again_with_the_one_it_is_told() -> None:
    world = World()
    with pytest.raises(MemberIdNeeded) as needed:
        world.join("a", needs_known_id=True)
    assert world.group.state is State.EMPTY
    world.join("a", needed.value.member_id, needs_known_id=True)
    assert world.joined("a").member_id == needed.value.member_id
    # An id that does not come back is forgotten.
    with pytest.raises(MemberIdNeeded) as lost:
        world.join("b", needs_known_id=True)
    world.pass_time(SESSION_MS)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        world.join("b", lost.value.member_id, needs_known_id=True)


def test_silent_members_are_removed() -> None:
    world = World()
    leader, other = world.stable(2)
    world.pass_time(SESSION_MS - 1)
    world.alive(leader)
    world.pass_time(1)
    assert list(world.group.members) == [leader]
    assert world.is_in(State.PREPARING)
    world.join("again", leader)
    assert world.joined("again").generation == 3
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        world.group.heartbeat(other, None, 2, world.now_ms)
    # An answer is due to it: it cannot send heartbeats. Nor does it ask for its assignment.
    world.pass_time(REBALANCE_MS)
    assert not world.group.members
    assert world.group.state is State.EMPTY


def test_who_does_not_join_in_time_is_left_behind() -> None:
    world = World()
    leader, other = world.stable(2)
    world.join("b", other, protocols=(("range", b"new"),))
    for _ in range(6):
        world.pass_time(SESSION_MS - 1)
        with refused(ErrorCode.REBALANCE_IN_PROGRESS):
            world.alive(leader)
    assert "b" not in world.answers
    world.pass_time(6)
    assert world.joined("b").leader_id == other
    assert list(world.group.members) == [other]


def test_who_does_not_ask_for_its_assignment_is_removed() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.join("a2", "m1")
    world.sync("s1", "m1", {})
    for _ in range(8):
        world.pass_time(REBALANCE_MS / 8)
        for member_id in list(world.group.members):
            if world.group.state is State.STABLE:
                world.alive(member_id)
    assert list(world.group.members) == ["m1"]


def test_a_new_member_interrupts_those_who_wait_for_assignments() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.join("a2", "m1")
    assert world.sync("s2", "m2") is None
    world.join("c")
    assert world.code("s2") is ErrorCode.REBALANCE_IN_PROGRESS


def test_generations_and_members_are_checked() -> None:
    world = World()
    leader, other = world.stable(2)
    group, now_ms = world.group, world.now_ms
    for call in (
        lambda: group.heartbeat(leader, None, 1, now_ms),
        lambda: group.check_commit(leader, None, 1, now_ms),
        lambda: world.sync("x", leader, generation=1),
    ):
        with refused(ErrorCode.ILLEGAL_GENERATION):
            call()
    for call in (
        lambda: group.heartbeat("nobody", None, 2, now_ms),
        lambda: group.leave("nobody", None, now_ms),
        lambda: group.check_commit("nobody", None, 2, now_ms),
        # While there are members, only they commit.
        lambda: group.check_commit("", None, -1, now_ms),
        lambda: group.heartbeat(leader, "not static", 2, now_ms),
    ):
        with refused(ErrorCode.UNKNOWN_MEMBER_ID):
            call()
    assert group.check_commit("", None, -1, now_ms, in_transaction=True) == 2
    assert group.check_commit(leader, None, 2, now_ms) == 2
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        world.sync("x", leader, protocol="sticky")
    group.leave(other, None, now_ms)
    # A member commits while the group prepares, and not while it has no assignment yet.
    assert group.check_commit(leader, None, 2, now_ms) == 2
    world.join("again", leader)
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        group.check_commit(leader, None, 3, now_ms)
    assert group.check_commit(leader, None, 3, now_ms, in_transaction=True) == 3
    group.leave(leader, None, now_ms)
    assert group.state is State.EMPTY
    assert group.check_commit("", None, -1, now_ms) == 4


def test_protocols_have_to_fit() -> None:
    world = World()
    world.join("a", protocols=(("range", b""), ("sticky", b"")))
    for more in (
        {"protocols": (("other", b""),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ):
        with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
            world.join("b", **more)
    world.join("b", protocols=(("sticky", b""),))
    world.join("a2", "m1", protocols=(("range", b""), ("sticky", b"")))
    assert world.joined("b").protocol == "sticky"


def test_most_members_decide_on_the_assignor() -> None:
    def member(*names: str) -> Member:
        return Member(
            member_id="",
            instance_id=None,
            client_id="",
            client_host="",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocols=tuple((name, b"") for name in names),
        )

    assert favourite([member("a", "b"), member("b", "a"), member("b", "a")]) == "b"
    assert favourite([member("a", "b"), member("b")]) == "b"
    assert favourite([member("a"), member("b")]) == ""
    assert favourite([]) == ""


def test_a_leader_that_joins_again_makes_the_group_assign_anew_and_others_do_not() -> None:
    world = World()
    leader, other = world.stable(2)
    again = world.join("b", other)
    assert again is not None
    assert again.generation == 2
    assert world.join("a", leader) is None
    assert world.group.state is State.PREPARING


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = World()
    world.join("a", instance_id="i")
    world.sync("s", "m1", {"m1": b"all"}, instance_id="i")
    back = world.join("b", instance_id="i", can_skip_assignment=True)
    assert back is not None
    assert (back.generation, back.member_id, back.leader_id) == (1, "m2", "m2")
    assert back.skip_assignment
    assert world.sync("s2", "m2", instance_id="i") == Synced("consumer", "range", b"all")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        world.group.heartbeat("m1", "i", 1, world.now_ms)
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        world.join("c", "m1", instance_id="i")
    # An older client would assign anew as a leader, without an effect.
    older = world.join("d", instance_id="i")
    assert older is not None
    assert (older.leader_id, older.members, older.skip_assignment) == ("m2", (), False)
    world.group.leave("", "i", world.now_ms)
    assert world.group.state is State.EMPTY


def test_a_static_member_that_changes_what_it_can_makes_the_group_assign_anew() -> None:
    world = World()
    world.join("a", instance_id="i")
    world.sync("s", "m1", {"m1": b"all"}, instance_id="i")
    assert world.join("b", instance_id="i", protocols=(("sticky", b""),)) is None
    assert world.joined("b").generation == 2


def test_a_static_member_that_waits_is_fenced_by_the_one_that_comes() -> None:
    world = World(delay_ms=500)
    world.join("a", instance_id="i")
    world.join("b", instance_id="i")
    assert world.code("a") is ErrorCode.FENCED_INSTANCE_ID
    world.pass_time(500)
    assert world.joined("b").member_id == "m2"


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    world = World()
    world.join("a", instance_id="i", session_timeout_ms=200_000)
    world.sync("s", "m1", {"m1": b"all"}, instance_id="i")
    world.join("b")
    world.pass_time(REBALANCE_MS)
    assert [one.member_id for one in world.joined("b").members] == ["m1", "m2"]
    world.sync("s2", "m2", {"m1": b"one", "m2": b"two"})
    assert world.group.state is State.STABLE
    back = world.join("c", instance_id="i", session_timeout_ms=200_000)
    assert back is not None
    assert world.sync("s3", "m3", instance_id="i") == Synced("consumer", "range", b"one")


def test_a_client_that_is_gone_has_joined_all_the_same() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.group.abandon("b", world.now_ms)
    world.join("a2", "m1")
    assert "b" not in world.answers
    assert [one.member_id for one in world.joined("a2").members] == ["m1", "m2"]
    world.sync("s", "m1", {})
    for _ in range(3):
        world.pass_time(SESSION_MS - 1)
        if world.group.state is State.STABLE:
            world.alive("m1")
        else:
            world.join(f"a {world.now_ms}", "m1")
    assert list(world.group.members) == ["m1"]


def test_a_group_is_as_it_was_after_a_restart() -> None:
    world = World()
    leader, other = world.stable(2)
    row = row_of(world.group, 7)
    world.group = restored("g", row, first_join_delay_ms=0, now_ms=world.now_ms)
    world.pump()
    assert row_of(world.group, 7) == row
    world.alive(leader, other)
    assert world.sync("again", other) == Synced("consumer", "range", other.encode())
    # While it prepares, it is restored so: all members join again.
    world.join("c")
    row = row_of(world.group, 7)
    world.group = restored("g", row, first_join_delay_ms=0, now_ms=world.now_ms)
    assert world.group.state is State.PREPARING
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        world.alive(leader)


def test_a_process_that_was_stopped_expels_nobody() -> None:
    world = World()
    leader, other = world.stable(2)
    world.now_ms += 100_000
    world.group.forgive(world.now_ms)
    world.group.tick(world.now_ms)
    world.alive(leader, other)


def test_a_group_goes_on_above_what_owners_of_partitions_know() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.group.learn_generation(40, world.now_ms)
    with refused(ErrorCode.ILLEGAL_GENERATION):
        world.group.heartbeat(leader, None, 1, world.now_ms)
    world.join("a", leader)
    assert world.joined("a").generation == 41


def test_topics_of_a_subscription_are_read_as_far_as_they_can() -> None:
    whole = b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff"
    assert subscribed_topics(whole) == ["a", "bc"]
    assert subscribed_topics(whole[:10]) == ["a"]
    assert subscribed_topics(b"\x00\x01\xff\xff\xff\xff\x00\x01a") == ["a"]
    assert subscribed_topics(b"") == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "again", "sync", "heartbeat", "leave", "gone", "time", "static"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(ACTIONS, st.sampled_from([0, 500]))
def test_whatever_clients_do_tickets_are_answered_once_and_generations_rise(
    actions: list[tuple[str, int]], delay_ms: int
) -> None:
    world = World(delay_ms)
    group = world.group
    seen: list[tuple[int, str]] = []
    tickets = set()
    for step, (action, number) in enumerate(actions):
        ids = list(group.members)
        member_id = ids[number % len(ids)] if ids else "none"
        instance_id = group.members[member_id].instance_id if ids else None
        before, ticket = group.generation, f"{action} {step}"
        try:
            if action == "join":
                if world.join(ticket) is None:
                    tickets.add(ticket)
            elif action == "static":
                if world.join(ticket, instance_id=f"i{number}") is None:
                    tickets.add(ticket)
            elif action == "again":
                if world.join(ticket, member_id, instance_id=instance_id) is None:
                    tickets.add(ticket)
            elif action == "sync":
                assignments = {one: one.encode() for one in ids}
                if world.sync(ticket, member_id, assignments, instance_id=instance_id) is None:
                    tickets.add(ticket)
            elif action == "heartbeat":
                group.heartbeat(member_id, instance_id, group.generation, world.now_ms)
            elif action == "leave":
                group.leave(member_id, instance_id, world.now_ms)
            elif action == "gone" and ids:
                for waiting in (group.members[member_id].joining, group.members[member_id].syncing):
                    group.abandon(waiting, world.now_ms)
                    tickets.discard(waiting)
            else:
                world.pass_time(number * 7_000)
        except Refused:
            pass
        world.pump()
        assert group.generation >= before
    # In the end all who wait are answered.
    world.pass_time(4 * REBALANCE_MS)
    seen += [
        (answer.generation, answer.leader_id)
        for answer in world.answers.values()
        if isinstance(answer, Joined)
    ]
    assert tickets <= world.answers.keys()
    leaders: dict[int, str] = {}
    for generation, leader_id in seen:
        assert leaders.setdefault(generation, leader_id) == leader_id
