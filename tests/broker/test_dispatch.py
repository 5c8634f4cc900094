"""Dispatch against a model: every PENDING offset is in a single place, redeliveries count."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.harness import txn

from magnetar_broker.dispatch.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.dispatch.dispatch import (
    REDELIVERY_COUNT_MAX,
    Consumer,
    Dispatcher,
    RedeliveryCounts,
    SubscriptionType,
)
from magnetar_broker.log.offset_set import OffsetSet

BATCH = 4
END = 40

offsets = st.integers(0, END - 1)
ranges = st.tuples(offsets, st.integers(0, 5)).map(lambda p: (p[0], min(END - 1, sum(p))))


class DispatchMachine(RuleBasedStateMachine):
    kind = SubscriptionType.SHARED

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Acknowledgements()
        self.dispatcher = Dispatcher(self.cursor, 0)
        self.next_id = 0
        self.counts: dict[int, int] = {}
        # What consumers held that vanished, and may come back: by offset.
        self.vanished: dict[int, int] = {}
        self.acks = 0
        self.withheld = OffsetSet()

    @rule(comes_back=st.booleans())
    def attach(self, comes_back: bool) -> None:
        if len(self.dispatcher.consumers) < 3:
            attached = {one.consumer_id for one in self.dispatcher.consumers}
            away = sorted(set(self.vanished.values()) - attached)
            if comes_back and away:
                consumer_id = away[0]
                self.vanished = {o: one for o, one in self.vanished.items() if one != consumer_id}
            else:
                self.next_id += 1
                consumer_id = self.next_id
            consumer = Consumer(consumer_id, str(-consumer_id % 10), 0)
            self.dispatcher.attach(consumer, self.kind)

    @precondition(lambda self: self.dispatcher.consumers)
    @rule(which=st.integers(0, 2), vanishes=st.booleans())
    def detach(self, which: int, vanishes: bool) -> None:
        consumers = self.dispatcher.consumers
        leaving = consumers[which % len(consumers)]
        if vanishes:
            self.vanished.update(dict.fromkeys(members(leaving.held), leaving.consumer_id))
        self.dispatcher.detach(leaving, vanished=vanishes)
        assert not leaving.held

    @precondition(lambda self: self.dispatcher.consumers)
    @rule(which=st.integers(0, 2), permits=st.integers(1, 12))
    def flow(self, which: int, permits: int) -> None:
        consumers = self.dispatcher.consumers
        consumers[which % len(consumers)].permits += permits
        while (offset := self.dispatcher.next_offset(END)) is not None:
            first = offset // BATCH * BATCH
            free = self.free()
            for one in free & self.vanished.keys() & set(range(first, first + BATCH)):
                del self.vanished[one]
                self.count({one})
            assignment = self.dispatcher.assign(first, BATCH, BATCH)
            if assignment is None:
                continue
            excluded = {o for a, b in assignment.excluded for o in range(a, b + 1)}
            given = set(range(first, first + BATCH)) - excluded
            assert given
            assert given <= free
            assert given <= members(assignment.consumer.held)
            assert {self.counts.get(o, 0) for o in given} == {assignment.redelivery_count}
            if self.kind is SubscriptionType.FAILOVER:
                assert assignment.consumer is self.dispatcher.active
                # In order.
                behind = (free - given) | members(self.dispatcher.withheld)
                assert max(given) < min(behind, default=END)

    @rule(one=ranges)
    def acknowledge(self, one: tuple[int, int]) -> None:
        deleted = self.cursor.acknowledge([one])
        self.dispatcher.acknowledged(deleted)
        for first, last in deleted:
            for offset in range(first, last + 1):
                self.forget(offset)

    @rule(one=ranges)
    def pend(self, one: tuple[int, int]) -> None:
        first, last = one
        if not self.cursor.unavailable_mask(first, last):
            self.cursor.acknowledge_in(txn(1), PendingAck(0, self.acks, (one,)))
            self.acks += 1
            self.dispatcher.pend([one])

    @rule(committed=st.booleans())
    def end(self, committed: bool) -> None:
        deleted, released = self.cursor.end(txn(1), {0: self.acks} if committed else {})
        self.acks = 0
        self.dispatcher.acknowledged(deleted)
        for offset in members(OffsetSet(deleted)):
            self.forget(offset)
        self.dispatcher.withhold(released)
        self.withheld.update(released)

    @rule()
    def durable(self) -> None:
        self.count(members(self.dispatcher.withheld))
        self.dispatcher.release(self.withheld)
        self.withheld = OffsetSet()

    @precondition(lambda self: self.dispatcher.consumers)
    @rule(which=st.integers(0, 2), one=ranges, seen=st.integers(0, 3))
    def nack(self, which: int, one: tuple[int, int], seen: int) -> None:
        consumers = self.dispatcher.consumers
        consumer = consumers[which % len(consumers)]
        had = members(consumer.held) | members(self.dispatcher.replay)
        had &= set(range(one[0], one[1] + 1))
        self.count({offset for offset in had if self.counts.get(offset, 0) <= seen})
        self.dispatcher.nack(consumer, [one], seen)

    def forget(self, offset: int) -> None:
        self.counts.pop(offset, None)
        self.vanished.pop(offset, None)

    def count(self, given_back: set[int]) -> None:
        for offset in given_back:
            self.counts[offset] = self.counts.get(offset, 0) + 1

    def free(self) -> set[int]:
        dispatcher = self.dispatcher
        unread = set(range(dispatcher.read_offset, END))
        taken = members(self.cursor.pending) | members(dispatcher.withheld)
        unread = {o for o in unread - taken if not self.cursor.is_deleted(o)}
        return unread | members(dispatcher.replay)

    @invariant()
    def every_pending_offset_is_in_exactly_one_place(self) -> None:
        self.dispatcher.check()
        places = [self.free(), members(self.dispatcher.withheld)]
        places += [members(consumer.held) for consumer in self.dispatcher.consumers]
        together = sorted(offset for place in places for offset in place)
        pending = [
            offset
            for offset in range(END)
            if not self.cursor.is_deleted(offset) and offset not in self.cursor.pending
        ]
        assert together == pending


def members(of: OffsetSet) -> set[int]:
    return {offset for first, last in of.ranges() for offset in range(first, last + 1)}


class FailoverMachine(DispatchMachine):
    kind = SubscriptionType.FAILOVER


TestShared = DispatchMachine.TestCase
TestShared.settings = settings(max_examples=60, stateful_step_count=30)
TestFailover = FailoverMachine.TestCase
TestFailover.settings = settings(max_examples=40, stateful_step_count=30)


def test_redelivery_counts_are_capped() -> None:
    counts = RedeliveryCounts()
    for _ in range(REDELIVERY_COUNT_MAX + 5):
        counts.raise_for(OffsetSet([(3, 3)]))
    assert counts.alike(2, 0b10) == (REDELIVERY_COUNT_MAX, 0b10)
    assert counts.alike(2, 0b11) == (0, 0b01)
    counts.forget(3, 3)
    assert counts.alike(2, 0b11) == (0, 0b11)


def test_a_batch_whose_end_is_not_visible_goes_out_without_it() -> None:
    dispatcher = Dispatcher(Acknowledgements(), 0)
    consumer = Consumer(1, "", 0, permits=10)
    dispatcher.attach(consumer, SubscriptionType.EXCLUSIVE)
    assignment = dispatcher.assign(0, 5, 3)
    assert assignment is not None
    assert assignment.excluded == ((3, 4),)
    assert (consumer.permits, dispatcher.read_offset) == (7, 3)
