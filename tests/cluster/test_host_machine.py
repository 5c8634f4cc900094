"""Decisions of two members over one directory, with every order of requests, answers and views.

Clocks, losses, requests that arrive after their sender has given up, openings that take long,
crashes: hypothesis chooses. The directory is the real state; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cluster.hosting import delete_row
from tests.configs import host_settings

from magnetar_cluster.directory.cluster_directory import LeaseExpired, LeaseId
from magnetar_cluster.directory.cluster_directory_state import Claim as ClaimRequest
from magnetar_cluster.directory.cluster_directory_state import (
    ClusterDirectoryState,
    Drain,
    Grant,
    Join,
    Pin,
    Renew,
    Request,
)
from magnetar_cluster.directory.cluster_directory_state import Release as ReleaseRequest
from magnetar_cluster.directory.view import (
    BROKER,
    Format,
    Member,
    MemberName,
    ShardName,
    ShardOwner,
    View,
)
from magnetar_cluster.hosting.host_actions import Abandon, Action, Claim, Close, Open, Release
from magnetar_cluster.hosting.host_state import HostState
from magnetar_cluster.hosting.lease import Lease
from magnetar_cluster.hosting.shard_phase import ShardPhase

SETTINGS = host_settings(
    settling_ms=4_000,
    handover_ms_max=6_000,
    opening_pause_ms_max=4_000,
    opening_ms_max=9_000,
    opening_failures_max=2,
    refusal_pause_ms_min=8_000,
    refusal_pause_ms_max=16_000,
)
SHARDS = Format(broker_shards=3, coordinator_shards=1).shards(BROKER)
# Clocks may go wrong by this much, one against the other.
RATES = st.sampled_from([0.8, 1.0, 1.25])


@dataclass(eq=False)
class Asked:
    """A claim, release or renewal that is under way.

    Attributes:
        request: None once it has had its effect.
        waits: whether the sender still waits for the answer.
    """

    request: Request[Any] | None
    action: Action | None = None
    sent_at_ms: float = 0.0
    waits: bool = True
    answer: int | None = None
    expired: bool = False


@dataclass(eq=False)
class Life:
    """A member from its start to its crash."""

    name: str
    rate: float
    state: HostState
    # What the directory has not been told yet, or has not answered.
    asked: list[Asked] = field(default_factory=list)
    working: list[Action] = field(default_factory=list)
    open: dict[ShardName, int] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    leaving: bool = False
    # What the member was told last: that it may speak, or may not.
    spoke: bool = False


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.directory = ClusterDirectoryState()
        self.random = Random(1)
        self.lives: dict[str, Life] = {}
        # Of lives that are over; they may still arrive.
        self.orphaned: list[Asked] = []
        self.opened: set[int] = set()

    # What is made of it.

    def clock(self, life: Life) -> float:
        return self.now_ms * life.rate + 1_000_000

    def begin(self, name: str, rate: float) -> None:
        state = HostState(MemberName(BROKER, name), SHARDS, SETTINGS, self.random)
        self.lives[name] = Life(name, rate, state)

    def decide(self, life: Life) -> None:
        before = {shard: slot.held for shard, slot in life.state.slots.items()}
        for action in life.state.decide(self.clock(life)):
            match action:
                case Claim(shard, lease):
                    assert life.state.lease is not None
                    assert life.state.lease.id == lease
                    assert life.state.joined
                    assert not life.leaving
                    if before[shard] is None:
                        assert MemberName(BROKER, life.name) not in life.state.view.draining
                    life.asked.append(Asked(ClaimRequest(lease, shard, life.name), action))
                case Release(shard, epoch):
                    assert life.open.get(shard) != epoch, "given back while it is open"
                    life.asked.append(Asked(ReleaseRequest(shard, epoch), action))
                case Open(shard, epoch):
                    assert epoch not in self.opened, "one epoch is opened twice"
                    assert shard not in life.open
                    self.opened.add(epoch)
                    life.working.append(action)
                case Close(shard, epoch) | Abandon(shard, epoch):
                    assert life.open.get(shard, epoch) == epoch
                    assert not any(
                        isinstance(one, Abandon) and one.shard == shard for one in life.working
                    ), "a shard is let go of twice at once"
                    life.working.append(action)
        # They are cancelled, which takes as long as it takes.
        for epoch in life.state.useless_openings():
            assert any(isinstance(one, Open) and one.epoch == epoch for one in life.working)
        self.somebody_asks_again(life)
        handed_over = [
            slot for slot in life.state.slots.values() if slot.held and slot.held.handed_over
        ]
        limit = SETTINGS.constants.leaving_handovers_max if life.leaving else 1
        assert len(handed_over) <= limit

    def somebody_asks_again(self, life: Life) -> None:
        """Whatever waits for nothing but time has a timer, and nothing waits for nobody."""
        state, now_ms = life.state, self.clock(life)
        due: list[float] = []
        for shard, slot in state.slots.items():
            held = slot.held
            if slot.taken_by_ms is not None:
                due.append(slot.taken_by_ms)
            if held is None:
                free = shard not in state.view.shard_owners and not state.leaving and state.joined
                if free and state._wish.get(shard) == life.name:
                    due.append(slot.claim_after_ms)
            elif slot.action is None:
                match held.phase:
                    case ShardPhase.CLAIMING if not state.joined:
                        pass  # Until the row is written.
                    case ShardPhase.CLAIMING | ShardPhase.RELEASING:
                        due.append(slot.again_at_ms)
                    case ShardPhase.OPENING:
                        # Until the member may speak.
                        assert state.lease is not None
                        assert not state.lease.may_speak()
                    case _:
                        assert held.phase is ShardPhase.SERVING, f"nothing is done about {shard}"
            elif held.phase is ShardPhase.OPENING and not slot.overdue:
                overdue_at_ms = held.since_ms + SETTINGS.opening_ms_max
                if overdue_at_ms > now_ms:
                    due.append(overdue_at_ms)
        if due:
            assert state.wakes_at_ms is not None, "nobody asks again"
            assert state.wakes_at_ms <= min(due)

    def check_speech(self, life: Life) -> None:
        """Tell the member if it may speak since now, or no longer, as MemberLease does."""
        lease = life.state.lease
        may_speak = lease is not None and lease.may_speak()
        if may_speak is not life.spoke:
            life.spoke = may_speak
            self.decide(life)

    def timers(self, life: Life) -> None:
        """Let the timers fire that are due. In a member they may be late."""
        self.check_speech(life)
        wakes_at_ms = life.state.wakes_at_ms
        if wakes_at_ms is not None and self.clock(life) >= wakes_at_ms:
            self.decide(life)

    def lease_ends(self, life: Life) -> None:
        """The directory says so, or the member gives it up."""
        life.state.lease_ended(self.clock(life))
        self.decide(life)
        self.check_speech(life)

    def join(self, life: Life) -> None:
        """Have a lease and a row, as MemberLease does."""
        state = life.state
        if state.lease is None:
            lease = Lease(SETTINGS.lease_duration_ms, lambda: self.clock(life))
            sent_at_ms = self.clock(life)
            number = self.directory.apply(self.now_ms, Grant(SETTINGS.lease_duration_ms))
            lease.begun(number, sent_at_ms)
            state.lease_begun(lease)
            self.decide(life)
            self.check_speech(life)
        assert state.lease is not None
        assert state.lease.id is not None
        row = Member(address=life.name, leaving=life.leaving, refused=state.refused)
        request = Join(state.lease.id, MemberName(BROKER, life.name), row)
        try:
            written = self.directory.apply(self.now_ms, request)
        except LeaseExpired:
            self.lease_ends(life)
            return
        if written:
            state.row_written()
            self.decide(life)

    def arrive(self, asked: Asked) -> None:
        if asked.request is None:
            return
        try:
            asked.answer = self.directory.apply(self.now_ms, asked.request)
        except LeaseExpired:
            asked.expired = True
        asked.request = None

    def answer(self, life: Life, asked: Asked) -> None:
        life.asked.remove(asked)
        state = life.state
        now_ms = self.clock(life)
        match asked.action:
            case _ if not asked.waits:
                return
            case Claim() if asked.expired:
                # The lease may be an earlier one.
                if state.lease is not None and state.lease.id == asked.action.lease:
                    self.lease_ends(life)
            case Claim():
                state.claimed(asked.action, asked.answer, now_ms)
            case Release():
                state.released(asked.action, now_ms)
        self.decide(life)

    def work(self, life: Life, action: Action, *, fails: bool) -> None:
        """An opening, a closing or an abandoning ends."""
        life.working.remove(action)
        now_ms = self.clock(life)
        match action:
            case Open(shard, epoch):
                if fails:
                    life.state.not_opened(action, "no store", now_ms)
                else:
                    life.open[shard] = epoch
                    life.state.opened(action, now_ms)
            case Close(shard):
                if life.state.slots[shard].action is not action:
                    return
                if fails:
                    life.state.not_closed(action, now_ms)
                else:
                    del life.open[shard]
                    life.state.closed(action, now_ms)
            case Abandon(shard):
                life.open.pop(shard, None)
                life.state.abandoned(action, now_ms)
        self.decide(life)

    def see(self, life: Life, view: View) -> None:
        if life.state.saw(view, self.clock(life)):
            self.decide(life)

    # What may happen.

    @initialize(rates=st.tuples(RATES, RATES))
    def start(self, rates: tuple[float, float]) -> None:
        for name, rate in zip("ab", rates, strict=True):
            self.begin(name, rate)

    names = st.sampled_from("ab")

    @rule(ms=st.sampled_from([1, 50, 900, 2_100, 3_100, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.directory.expire(self.now_ms)

    @rule(name=names)
    def timers_fire(self, name: str) -> None:
        self.timers(self.lives[name])

    @rule(name=names)
    def joins(self, name: str) -> None:
        self.join(self.lives[name])

    @rule(name=names)
    def sends_a_renewal(self, name: str) -> None:
        life = self.lives[name]
        lease = life.state.lease
        if lease is not None and lease.id is not None:
            life.asked.append(Asked(Renew(lease.id), sent_at_ms=self.clock(life)))

    @rule(name=names, data=st.data())
    def a_renewal_is_answered(self, name: str, data: st.DataObject) -> None:
        life = self.lives[name]
        renewals = [one for one in life.asked if one.action is None]
        if not renewals:
            return
        asked = data.draw(st.sampled_from(renewals))
        lease = life.state.lease
        number: LeaseId | None = getattr(asked.request, "lease", None)
        self.arrive(asked)
        life.asked.remove(asked)
        if lease is None or (number is not None and lease.id != number):
            return
        if asked.expired:
            self.lease_ends(life)
        elif number is not None:
            self.check_speech(life)
            lease.renewed(asked.sent_at_ms)
            self.check_speech(life)

    @rule(name=names, data=st.data())
    def a_request_arrives(self, name: str, data: st.DataObject) -> None:
        asked = [
            one
            for one in [*self.lives[name].asked, *self.orphaned]
            if one.request is not None and one.action is not None
        ]
        if asked:
            self.arrive(data.draw(st.sampled_from(asked)))

    @rule(name=names, data=st.data())
    def an_answer_arrives(self, name: str, data: st.DataObject) -> None:
        life = self.lives[name]
        asked = [one for one in life.asked if one.action is not None]
        if asked:
            chosen = data.draw(st.sampled_from(asked))
            self.arrive(chosen)
            self.answer(life, chosen)

    @rule(name=names, data=st.data())
    def an_answer_is_not_awaited_any_more(self, name: str, data: st.DataObject) -> None:
        life = self.lives[name]
        asked = [one for one in life.asked if one.waits and one.action is not None]
        if not asked:
            return
        chosen = data.draw(st.sampled_from(asked))
        chosen.waits = False
        assert isinstance(chosen.action, Claim | Release)
        life.state.unanswered(chosen.action, self.clock(life))
        self.decide(life)

    @rule(name=names, data=st.data(), fails=st.booleans())
    def work_ends(self, name: str, data: st.DataObject, fails: bool) -> None:
        life = self.lives[name]
        if life.working:
            self.work(life, data.draw(st.sampled_from(life.working)), fails=fails)

    @rule(
        seconds=st.sampled_from([1, 1, 3, 12]),
        hangs=st.sets(st.sampled_from([Claim, Release, Open, Close, Abandon]), max_size=2),
        fails=st.sampled_from([set(), set(), {Open}, {Close}]),
    )
    def much_goes_well(
        self, seconds: int, hangs: set[type[Action]], fails: set[type[Action]]
    ) -> None:
        """A history gets far by that."""
        self.calm_down(seconds=seconds, hangs=hangs, fails=fails)

    @rule(name=names)
    def useless_openings_end(self, name: str) -> None:
        life = self.lives[name]
        useless = life.state.useless_openings()
        for action in list(life.working):
            if isinstance(action, Open) and action.epoch in useless:
                self.work(life, action, fails=True)

    @rule(name=names)
    def is_closed_and_starts(self, name: str) -> None:
        """It is silent at once, abandons what it has, and gives its lease back then."""
        life = self.lives[name]
        lease = life.state.lease
        life.state.leave()
        life.leaving = True
        self.lease_ends(life)
        for _ in range(5):
            for action in list(life.working):
                if isinstance(action, Open | Abandon):
                    self.work(life, action, fails=isinstance(action, Open))
                elif isinstance(action, Close):
                    life.working.remove(action)
            if not life.state.has_shards():
                break
        assert not life.state.has_shards()
        assert not life.open
        self.orphaned += life.asked
        if lease is not None and lease.id is not None:
            self.directory.revoke(lease.id)
        self.begin(life.name, life.rate)

    @rule(name=names)
    def a_row_is_deleted_by_hand(self, name: str) -> None:
        if MemberName(BROKER, name) in self.directory.view.members:
            delete_row(self.directory, MemberName(BROKER, name))

    @rule(name=names, data=st.data())
    def a_shard_ends_by_itself(self, name: str, data: st.DataObject) -> None:
        life = self.lives[name]
        if life.open:
            shard, epoch = data.draw(st.sampled_from(sorted(life.open.items())))
            life.state.failed(shard, epoch, "fenced", self.clock(life))
            self.decide(life)

    @rule(name=names)
    def a_view_is_sent(self, name: str) -> None:
        self.lives[name].views.append(self.directory.view)

    @rule(name=names)
    def a_view_arrives(self, name: str) -> None:
        life = self.lives[name]
        if life.views:
            self.see(life, life.views.pop(0))

    @rule(name=names)
    def the_present_view_arrives(self, name: str) -> None:
        self.see(self.lives[name], self.directory.view)

    @rule(name=names, rate=RATES)
    def crashes_and_starts(self, name: str, rate: float) -> None:
        self.orphaned += self.lives[name].asked
        self.begin(name, rate)

    @rule(name=names, draining=st.booleans())
    def drains(self, name: str, draining: bool) -> None:
        self.directory.apply(self.now_ms, Drain(MemberName(BROKER, name), draining))

    @rule(shard=st.sampled_from(SHARDS), name=st.sampled_from(["a", "b", ""]))
    def pins(self, shard: ShardName, name: str) -> None:
        self.directory.apply(self.now_ms, Pin(shard, name))

    @rule(name=names)
    def leaves(self, name: str) -> None:
        life = self.lives[name]
        life.leaving = True
        life.state.leave()
        self.decide(life)

    # What has to hold.

    @invariant()
    def nobody_speaks_but_the_owner(self) -> None:
        self.directory.expire(self.now_ms)
        for life in self.lives.values():
            for shard, slot in life.state.slots.items():
                if slot.held is not None and life.state.speaks(shard, slot.held.epoch):
                    owner = self.directory.view.shard_owners.get(shard)
                    assert owner == ShardOwner(life.name, slot.held.epoch)

    @invariant()
    def what_is_open_is_known(self) -> None:
        for life in self.lives.values():
            for shard, epoch in life.open.items():
                held = life.state.slots[shard].held
                assert held is not None
                assert held.epoch == epoch
                assert held.phase in (
                    ShardPhase.SERVING,
                    ShardPhase.CLOSING,
                    ShardPhase.ENDING,
                    ShardPhase.LOST,
                )

    @invariant()
    def what_is_under_way_is_awaited(self) -> None:
        for life in self.lives.values():
            for action in life.working:
                if not isinstance(action, Close):
                    slot = life.state.slots[action.shard]
                    assert slot.held is not None, f"{action} is not awaited any more"

    @invariant()
    def a_claimed_shard_is_opened_or_somebody_asks_again(self) -> None:
        for life in self.lives.values():
            lease = life.state.lease
            for shard, slot in life.state.slots.items():
                if slot.held is None or slot.held.phase is not ShardPhase.OPENING or slot.action:
                    continue
                assert lease is not None
                waits = not lease.may_speak() or life.state.wakes_at_ms is not None
                assert waits, f"nobody opens {shard}"

    @invariant()
    def nothing_is_open_at_who_has_nothing(self) -> None:
        for life in self.lives.values():
            if life.state.is_empty():
                assert not life.open

    def teardown(self) -> None:
        """Once nothing goes wrong any more, every shard is served, evenly."""
        if not self.lives:
            return
        for name in "ab":
            self.directory.apply(self.now_ms, Drain(MemberName(BROKER, name), False))
        for shard in SHARDS:
            self.directory.apply(self.now_ms, Pin(shard, ""))
        for asked in self.orphaned:
            self.arrive(asked)
        if any(life.leaving for life in self.lives.values()):
            self.calm_down(seconds=45)
            for life in list(self.lives.values()):
                if life.leaving:
                    assert life.state.is_empty()
                    lease = life.state.lease
                    self.lease_ends(life)
                    if lease is not None and lease.id is not None:
                        self.directory.revoke(lease.id)
                    self.orphaned += life.asked
                    self.begin(life.name, life.rate)
        self.calm_down(seconds=90)
        self.nobody_speaks_but_the_owner()
        served = [
            sum(slot.held is not None and slot.held.phase is ShardPhase.SERVING for slot in slots)
            for slots in (life.state.slots.values() for life in self.lives.values())
        ]
        assert sorted(served) == [1, 2]

    def calm_down(
        self,
        *,
        seconds: int,
        hangs: Collection[type[Action]] = (),
        fails: Collection[type[Action]] = (),
    ) -> None:
        """Let time pass, in which all is answered and done but what hangs or fails."""
        for _ in range(seconds * 4):
            self.now_ms += 250
            self.directory.expire(self.now_ms)
            for life in self.lives.values():
                lease = life.state.lease
                if lease is not None and lease.id is not None:
                    try:
                        self.directory.apply(self.now_ms, Renew(lease.id))
                        self.check_speech(life)
                        lease.renewed(self.clock(life))
                        self.check_speech(life)
                    except LeaseExpired:
                        self.lease_ends(life)
                row = self.directory.view.members.get(MemberName(BROKER, life.name))
                state = life.state
                if (
                    not state.joined
                    or row is None
                    or (row.leaving, row.refused) != (life.leaving, state.refused)
                ):
                    self.join(life)
                self.timers(life)
                self.see(life, self.directory.view)
                for asked in [one for one in life.asked if one.action is not None]:
                    if type(asked.action) not in hangs:
                        self.arrive(asked)
                        self.answer(life, asked)
                for action in list(life.working):
                    useless = life.state.useless_openings()
                    cancelled = isinstance(action, Open) and action.epoch in useless
                    if action in life.working and (cancelled or type(action) not in hangs):
                        self.work(life, action, fails=cancelled or type(action) in fails)
                self.nobody_speaks_but_the_owner()


TestMembers = Members.TestCase
TestMembers.settings = hypothesis_settings(max_examples=60, stateful_step_count=60)
