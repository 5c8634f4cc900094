"""What is received and acknowledged the short way counts exactly as what goes the long way."""

from __future__ import annotations

import random
import sys
from itertools import pairwise

import pytest

from magnetar.config import ConsumerConfig
from magnetar.message import Message, ReceivedBatch
from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.receiving.fast_lane import NOTHING_LENT, AckRun, require_gil
from magnetar.messaging.receiving.permits import PrefetchBudget
from magnetar.messaging.receiving.receive_queue import ReceiveQueue
from magnetar_core.batch import encode
from magnetar_core.ids import SubscriptionName
from magnetar_core.wire import broker_pb2, common_pb2

NAME = SubscriptionName("flights", 0, 1, "s")
QUEUE_MESSAGES = 9


class Partition:
    """A partition's queue and tracker, put together as a receiver and a consumer do that."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.flows: list[tuple[int, int]] = []
        self.unacked = UnackedTracker(self.catch_up)
        self.pending = IntervalSet()
        config = ConsumerConfig(receiver_queue_messages=QUEUE_MESSAGES, receiver_queue_bytes=200)
        self.queue = ReceiveQueue(
            NAME,
            1,
            2,
            config,
            PrefetchBudget(1 << 20),
            self.unacked,
            flow=lambda count, byte_count: self.flows.append((count, byte_count)),
            give_back=lambda ranges: None,
        )
        self.run = AckRun()
        self.lent = NOTHING_LENT
        # The shares of the short ways.
        self.received_short = self.acked_short = 0

    def catch_up(self) -> None:
        self.queue.note_received()
        acked = self.run.end()
        if acked is not None:
            self.ack([acked])

    def arrive(self, first: int, count: int, excluded: list[Range]) -> None:
        wire = broker_pb2.DeliveredBatch(
            entry_id=first,
            num_messages=count,
            batch=encode([b"%d" % offset for offset in range(first, first + count)]),
            excluded=[common_pb2.OffsetRange(first=one, last=last) for one, last in excluded],
        )
        self.queue.add(1, [wire])

    def receive(self) -> Message | None:
        if self.short and (message := self.lent.next()) is not None:
            self.received_short += 1
            return message
        if not self.queue.ready:
            return None
        columns = self.queue.take(1)
        if self.short:
            self.lent = self.queue.lend(columns.batch)
        return Message(columns.batch, columns.start)

    def ack(self, ranges: list[Range]) -> None:
        self.queue.claim(ranges)
        self.unacked.ack_begins(ranges)
        self.pending.add_all(ranges)

    def ack_one(self, message: Message) -> None:
        if self.short and self.run.extend(message):
            self.acked_short += 1
            return
        self.ack([(message.offset, message.offset)])
        if self.short:
            end = self.queue.acks_until(message.batch, message.offset)
            batch = message.batch
            self.run.begin(batch, message.place + 1, end - batch.first_offset)

    def confirm(self) -> list[Range]:
        """The broker confirms what was gathered so far."""
        self.catch_up()
        ranges, self.pending = list(self.pending), IntervalSet()
        self.unacked.ack_confirmed(ranges)
        return ranges

    def state(self) -> list[object]:
        self.catch_up()
        unacked = self.unacked
        sets = (
            *(unacked.queued, unacked.held, unacked.given),
            *(unacked.acking, unacked.nacking, unacked.dropped),
        )
        return [
            *(list(one) for one in sets),
            list(self.pending),
            [one.ranges for one in self.queue.ready],
            self.queue.given_end,
            unacked.is_settled,
        ]


class Both:
    """An application that does the same with both, and sees no difference."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ways = (Partition(short=True), Partition(short=False))
        self.messages: list[tuple[Message, Message]] = []
        self.end = 0
        self.next_to_ack = 0

    def same(self, results: list[object]) -> None:
        assert results[0] == results[1]
        assert self.ways[0].flows == self.ways[1].flows

    def receive(self) -> None:
        found = [way.receive() for way in self.ways]
        self.same([one and (one.offset, one.value) for one in found])
        if found[0] is not None and found[1] is not None:
            self.messages.append((found[0], found[1]))

    def ack(self, place: int) -> None:
        for way, message in zip(self.ways, self.messages[place], strict=True):
            way.ack_one(message)

    def some(self) -> Range:
        """Offsets that were received, or soon are: those that are acknowledged next, mostly."""
        if self.next_to_ack < len(self.messages) and self.random.random() < 0.8:
            first = self.messages[self.next_to_ack][0].offset + self.random.randrange(3)
        else:
            first = self.random.randrange(self.end + 1)
        return first, first + self.random.randrange(4)

    def step(self) -> None:
        kind = self.random.random()
        ways = self.ways
        if kind < 0.45:
            self.receive()
        elif kind < 0.80:
            self.ack_next()
        elif kind < 0.83 and self.messages:
            self.ack(self.random.randrange(len(self.messages)))
        elif kind < 0.88:
            self.deliver()
        elif kind < 0.90:
            self.same([way.confirm() for way in ways])
        elif kind < 0.94:
            self.give_back()
        else:
            self.disturb(self.random.randrange(9))
        self.same([None, None])

    def deliver(self) -> None:
        count = self.random.randrange(1, 12)
        first = self.end
        if self.random.random() < 0.3:
            # A copy, or what was given back.
            first = self.random.randrange(self.end + 1)
        else:
            self.end += count
        excluded: list[Range] = []
        if self.random.random() < 0.3:
            place = first + self.random.randrange(count)
            excluded = [(place, place)]
        for way in self.ways:
            way.arrive(first, count, excluded)

    def give_back(self) -> None:
        """Messages come again, while the application goes on with the copies that it has."""
        first, last = self.some()
        self.same([way.unacked.nack_begins([(first, last)]) for way in self.ways])
        for _ in range(self.random.randrange(3)):
            self.ack_next()
        self.same([way.unacked.nack_due([(first, last)]) for way in self.ways])
        if self.random.random() < 0.5:
            self.ack_next()
        for way in self.ways:
            way.arrive(first, last - first + 1, [])

    def ack_next(self) -> None:
        if self.next_to_ack < len(self.messages):
            self.ack(self.next_to_ack)
            self.next_to_ack += 1

    def disturb(self, kind: int) -> None:
        ways, (first, last) = self.ways, self.some()
        if kind == 0:
            self.same([way.unacked.nack_begins([(first, last)]) for way in ways])
        elif kind == 1:
            self.same([way.unacked.nack_due([(first, last)]) for way in ways])
        elif kind == 2:
            for way in ways:
                way.ack([(first, last)])
        elif kind == 3:
            self.same([way.unacked.held_up_to(last) for way in ways])
        elif kind == 4:
            self.same([way.unacked.given_up_to(last, None) for way in ways])
        elif kind == 5:
            for way in ways:
                way.queue.claim([(first, last)])
                way.unacked.ack_in_transaction(7, [(first, last)])
        elif kind == 6:
            committed = self.random.random() < 0.5
            self.same([way.unacked.end_transaction(7, committed=committed) for way in ways])
        elif kind == 7:
            for way in ways:
                way.queue.clear()
                way.queue.begin()
        elif self.random.random() < 0.3:
            for way in ways:
                way.queue.take_back()
                way.unacked.reset()
                way.queue.given_end = None
                way.queue.clear()
        else:
            self.same([way.unacked.was_given(first) for way in ways])


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_between_them(seed: int) -> None:
    both = Both(seed)
    for way in both.ways:
        way.queue.begin()
    for number in range(200):
        both.step()
        if number % 23 == 22:
            both.same([way.state() for way in both.ways])
    both.same([way.state() for way in both.ways])


def test_most_go_the_short_way() -> None:
    way = Partition(short=True)
    way.arrive(0, 100, [])
    way.queue.begin()
    for _ in range(100):
        message = way.receive()
        assert message is not None
        way.ack_one(message)
    # Each fourth one renews the permits, and so does the last one of the batch.
    # Not the first, and not each fourth, which renews the permits.
    assert way.received_short == 100 - 1 - 25
    assert way.acked_short == 99
    assert way.confirm() == [(0, 99)]


def test_permits_are_renewed_as_soon_as_half_of_the_queue_was_received() -> None:
    way = Partition(short=True)
    way.arrive(0, 100, [])
    way.queue.begin()
    counts = []
    for _ in range(12):
        way.receive()
        counts.append(len(way.flows) - 1)
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_an_ack_of_another_batch_or_place_is_not_of_the_run() -> None:
    batches = []
    for first in (0, 4):
        wire = broker_pb2.DeliveredBatch(entry_id=first, num_messages=4, batch=encode([b"x"] * 4))
        batches.append(ReceivedBatch("flights", 0, 1, wire))
    run = AckRun()
    assert not run.extend(Message(batches[0], 0))
    run.begin(batches[0], 1, 3)
    assert not run.extend(Message(batches[0], 2))
    assert not run.extend(Message(batches[1], 1))
    assert run.extend(Message(batches[0], 1))
    assert not run.extend(Message(batches[0], 1))
    assert run.extend(Message(batches[0], 2))
    assert not run.extend(Message(batches[0], 3))
    assert run.end() == (1, 2)
    assert run.end() is None
    assert not run.extend(Message(batches[0], 3))


def test_the_messages_of_a_loan_come_once_each_in_order() -> None:
    way = Partition(short=True)
    way.arrive(0, 100, [])
    way.queue.begin()
    first = way.receive()
    assert first is not None
    offsets = [first.offset]
    while (message := way.lent.next()) is not None:
        offsets.append(message.offset)
    way.queue.take_back()
    offsets += [message.offset for message in iter(way.receive, None) if message is not None]
    assert offsets == list(range(100))
    assert all(after == before + 1 for before, after in pairwise(offsets))


@pytest.mark.parametrize("is_enabled", [None, True, False])
def test_an_interpreter_without_a_global_lock_is_refused(
    is_enabled: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads could take the same step of an iterator, and receive one message twice."""
    if is_enabled is None:
        monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    else:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: is_enabled, raising=False)
    if is_enabled is False:
        with pytest.raises(ImportError, match="PYTHON_GIL=1"):
            require_gil()
    else:
        require_gil()


def test_the_interpreter_of_this_test_has_a_global_lock() -> None:
    assert getattr(sys, "_is_gil_enabled", lambda: True)()
