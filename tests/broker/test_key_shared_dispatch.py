"""Key_Shared dispatch against a model: a single holder per slot, order per slot, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import google_crc32c
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.broker.harness import txn

from magnetar_broker.dispatch.acknowledgements import Acknowledgements, PendingAck
from magnetar_broker.dispatch.dispatch import Assignment, Consumer, Dispatcher
from magnetar_broker.dispatch.key_ranges import EMPTY_KEY_SLOT, slot_of_hash
from magnetar_broker.dispatch.key_shared import KeySharedDispatcher
from magnetar_broker.log.offset_set import OffsetSet, Range
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_core.batch import HEADER, encode, split

KEYS = [b"a", b"b", b"c", b"d", b"e"]
WAITING_MAX = 8


def slot_of(key: bytes) -> int:
    return slot_of_hash(google_crc32c.value(key))


class Log:
    """Stored batches of all kinds, and the slot and the message of each offset."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.slots: list[int] = []
        # Offset of the first part, of what belongs to a message in parts.
        self.message: dict[int, int] = {}

    @property
    def end(self) -> int:
        return len(self.slots)

    def add(self, batch: bytes, slots: list[int], *, hidden: int = 0) -> None:
        """Args: hidden: so many messages at the end of the batch do not count."""
        visible = slots[: len(slots) - hidden]
        self.batches.append(StoredBatch(self.end, 0, len(slots), len(visible), 0, batch))
        self.slots += visible

    def add_keys(self, *keys: bytes, hidden: int = 0) -> None:
        batch = encode([b"v"] * len(keys), list(keys))
        self.add(batch, [slot_of(key) for key in keys], hidden=hidden)

    def add_parts(self, key: bytes) -> None:
        first = self.end
        for part in split(encode([bytes(300)], [key]), 150):
            self.message[self.end] = first
            self.add(part, [slot_of(key)])

    def holding(self, offset: int) -> StoredBatch:
        return next(batch for batch in self.batches if batch.first_offset <= offset < batch.end)


def mixed_log(random: Random, batches: int = 14) -> Log:
    log = Log()
    for _ in range(batches):
        kind = random.random()
        if kind < 0.45:
            log.add_keys(*random.choices(KEYS, k=4))
        elif kind < 0.65:
            log.add_keys(*[random.choice(KEYS)] * 3)
        elif kind < 0.75:
            log.add(encode([b"v", b"w"]), [EMPTY_KEY_SLOT] * 2)
        elif kind < 0.85:
            log.add_keys(*random.choices(KEYS, k=3), hidden=1)
        elif kind < 0.9:
            batch = encode([b"v", b"w"], [b"a", b"b"])
            log.add(
                batch[: HEADER.size] + b"\xff" * (len(batch) - HEADER.size), [EMPTY_KEY_SLOT] * 2
            )
        else:
            log.add_parts(random.choice(KEYS))
    return log


class Harness:
    """A dispatcher with its cursor; everything that it hands out is checked."""

    def __init__(self, log: Log, *, waiting_max: int = WAITING_MAX) -> None:
        self.log = log
        self.waiting_max = waiting_max
        self.cursor = Acknowledgements()
        self.acks = 0
        self.first_offset = 0
        self.acks_come_late = False
        # What is done when the next group is durable, in order.
        self.later: list[Callable[[], None]] = []
        # Delivered since the last restart; to whom, in order.
        self.delivered: set[int] = set()
        self.history: list[tuple[int, int]] = []
        # Who has what is PENDING_ACK or not durably acknowledged.
        self.holder: dict[int, int] = {}
        self.dispatcher: Dispatcher = self.new_dispatcher()

    def new_dispatcher(self) -> KeySharedDispatcher:
        pending = [
            (consumer, (offset, offset))
            for offset, consumer in self.holder.items()
            if offset in self.cursor.pending
        ]
        return KeySharedDispatcher(
            self.cursor, 0, waiting_max=self.waiting_max, pending_acks=pending
        )

    @property
    def consumers(self) -> list[Consumer]:
        return self.dispatcher.consumers

    def attach(self, consumer_id: int, permits: int = 0) -> Consumer:
        consumer = Consumer(consumer_id, f"c{consumer_id}", 0, permits=permits)
        kind = self.dispatcher.type
        self.dispatcher.attach(consumer, kind)
        return consumer

    def pump(self) -> None:
        steps = 0
        while (offset := self.dispatcher.next_offset(self.log.end)) is not None:
            steps += 1
            assert steps < 10 * self.log.end, f"nothing becomes of {offset}"
            if offset < self.first_offset:
                # As Delivery does on OutOfRange.
                self.dispatcher.skip_to(self.first_offset)
                continue
            stored = self.log.holding(offset)
            for assignment in self.dispatcher.hand_out(stored):
                self.check_assignment(stored, assignment)
            self.dispatcher.check()

    def check_assignment(self, stored: StoredBatch, assignment: Assignment) -> None:
        excluded = {o for a, b in assignment.excluded for o in range(a, b + 1)}
        given = [o for o in range(stored.first_offset, stored.end) if o not in excluded]
        assert given
        consumer = assignment.consumer
        for offset in given:
            assert offset in consumer.held
            self.check_order(offset, set(given))
            self.check_one_holder(offset, consumer.consumer_id)
            self.delivered.add(offset)
            self.history.append((offset, consumer.consumer_id))

    def check_order(self, offset: int, together: set[int]) -> None:
        """Nothing of its slot that comes before it still has to go out."""
        is_continued = self.log.message.get(offset, offset) != offset
        for lower in range(offset):
            if not is_continued and lower not in together and self.same_slot(lower, offset):
                assert not self.is_free(lower), (lower, offset)

    def check_one_holder(self, offset: int, consumer_id: int) -> None:
        """Nobody else has anything unsettled of its slot.

        Where acks come late, whoever has begun a message in parts gets the rest of it all the same.
        """
        if self.acks_come_late and self.is_begun(offset, consumer_id):
            return
        for consumer in self.consumers:
            if consumer.consumer_id != consumer_id:
                for held in members(consumer.held):
                    assert not self.same_slot(held, offset), (held, offset)
        for other, holder in self.holder.items():
            if self.same_slot(other, offset):
                assert holder == consumer_id, (other, offset)

    def is_begun(self, offset: int, consumer_id: int) -> bool:
        """Whether it goes on with a message of which the consumer holds the part before."""
        if self.log.message.get(offset, offset) == offset:
            return False
        return any(
            offset - 1 in one.held for one in self.consumers if one.consumer_id == consumer_id
        )

    def same_slot(self, one: int, other: int) -> bool:
        message = self.log.message
        firsts = {message[offset] for offset in (one, other) if offset in message}
        if any(self.cursor.is_deleted(first) for first in firsts):
            # Parts of a message that cannot be put together any more: their key is not known.
            return False
        return self.log.slots[one] == self.log.slots[other]

    def is_free(self, offset: int) -> bool:
        """Whether it is PENDING and with nobody."""
        if self.cursor.unavailable_mask(offset, offset):
            return False
        return not any(offset in consumer.held for consumer in self.consumers)

    def acknowledge(self, one: Range, consumer_id: int = 0) -> None:
        holders = {o: c.consumer_id for c in self.consumers for o in members(c.held)}
        deleted = self.cursor.acknowledge([one])
        gone = [offset for a, b in deleted for offset in range(a, b + 1)]
        self.holder.update({o: holders[o] for o in gone if o in holders})
        settling = self.dispatcher.acknowledged(deleted)
        dispatcher = self.dispatcher

        def durable() -> None:
            for offset in gone:
                self.holder.pop(offset, None)
            if settling:
                dispatcher.settle(settling)

        self.later.append(durable)

    def whole(self, consumer: Consumer, wanted: Range) -> list[Range]:
        """What a consumer holds of a range: of a message in parts, all or nothing."""
        found = consumer.held.within([wanted])
        for first in set(self.log.message.values()):
            parts = {o for o, message in self.log.message.items() if message == first}
            if not parts <= members(found):
                found.discard(min(parts), max(parts))
        return list(found.ranges())

    def pend(self, ranges: list[Range], consumer_id: int) -> None:
        if any(self.cursor.unavailable_mask(*one) for one in ranges):
            return
        self.cursor.acknowledge_in(txn(1), PendingAck(0, self.acks, tuple(ranges)))
        self.acks += 1
        for first, last in ranges:
            for offset in range(first, last + 1):
                self.holder[offset] = consumer_id
        self.dispatcher.pend(ranges, consumer_id)

    def end(self, kept: int) -> None:
        deleted, released = self.cursor.end(txn(1), {0: kept})
        self.acks = 0
        if self.first_offset:
            # As Subscription.end: what retention removed while it pended counts as DELETED.
            released.discard(0, self.first_offset - 1)
            self.cursor.skip_to(self.first_offset)
            self.dispatcher.skip_to(self.first_offset)
        settling = self.dispatcher.acknowledged(deleted)
        self.dispatcher.withhold(released)
        for offset in members(released):
            self.holder.pop(offset, None)
        dispatcher = self.dispatcher

        def durable() -> None:
            self.dispatcher.release(released)
            for offset in members(OffsetSet(deleted)):
                self.holder.pop(offset, None)
            if settling:
                dispatcher.settle(settling)

        self.later.append(durable)

    def durable(self) -> None:
        later, self.later = self.later, []
        for one in later:
            one()

    def drain(self) -> None:
        """Everybody is ready and acknowledges: all there is goes out."""
        self.end(0)
        self.durable()
        if not self.consumers:
            self.attach(999)
        for _ in range(3 * self.log.end + 3):
            for consumer in self.consumers:
                consumer.permits = 1000
            self.pump()
            for consumer in self.consumers:
                for one in list(consumer.held.ranges()):
                    self.acknowledge(one)
            self.durable()
        assert self.cursor.floor == self.log.end, "something was never delivered"
        if isinstance(self.dispatcher, KeySharedDispatcher):
            assert not self.dispatcher._slots
            assert not len(self.dispatcher._known)


def members(of: OffsetSet) -> set[int]:
    return {offset for first, last in of.ranges() for offset in range(first, last + 1)}


offsets = st.integers(0, 60)
which = st.integers(0, 3)


class KeySharedMachine(RuleBasedStateMachine):
    """Consumers acknowledge what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self._world: Harness | None = None
        self.next_id = 0

    @property
    def has_begun(self) -> bool:
        return self._world is not None

    @property
    def world(self) -> Harness:
        assert self._world is not None, "begin() comes first"
        return self._world

    def one(self, place: int) -> Consumer:
        return self.world.consumers[place % len(self.world.consumers)]

    @precondition(lambda self: not self.has_begun)
    @rule(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self._world = Harness(mixed_log(Random(seed)))

    @precondition(lambda self: self.has_begun and len(self.world.consumers) < 4)
    @rule(permits=st.integers(0, 6))
    def attach(self, permits: int) -> None:
        self.next_id += 1
        self.world.attach(self.next_id, permits)
        self.world.pump()

    @precondition(lambda self: self.has_begun and self.world.consumers)
    @rule(place=which, again=st.booleans(), vanishes=st.booleans())
    def detach(self, place: int, again: bool, vanishes: bool) -> None:
        consumer = self.one(place)
        self.world.dispatcher.detach(consumer, vanished=vanishes)
        assert not consumer.held
        if again:
            self.world.attach(consumer.consumer_id, 3)
        self.world.pump()

    @precondition(lambda self: self.has_begun and self.world.consumers)
    @rule(place=which, permits=st.integers(1, 12))
    def flow(self, place: int, permits: int) -> None:
        self.one(place).permits += permits
        self.world.pump()

    @precondition(lambda self: self.has_begun and self.world.consumers)
    @rule(place=which, first=offsets, count=st.integers(1, 30))
    def acknowledge(self, place: int, first: int, count: int) -> None:
        for one in self.world.whole(self.one(place), (first, first + count)):
            self.world.acknowledge(one)
        self.world.pump()

    @precondition(lambda self: self.has_begun and self.world.consumers)
    @rule(place=which, first=offsets, count=st.integers(1, 30))
    def pend(self, place: int, first: int, count: int) -> None:
        consumer = self.one(place)
        found = self.world.whole(consumer, (first, first + count))
        if found:
            self.world.pend(found, consumer.consumer_id)
        self.world.pump()

    @precondition(lambda self: self.has_begun)
    @rule(kept=st.integers(0, 3))
    def end(self, kept: int) -> None:
        self.world.end(kept)
        self.world.pump()

    @precondition(lambda self: self.has_begun)
    @rule()
    def durable(self) -> None:
        self.world.durable()
        self.world.pump()

    @precondition(lambda self: self.has_begun and self.world.consumers)
    @rule(place=which, first=offsets, count=st.integers(0, 20))
    def nack(self, place: int, first: int, count: int) -> None:
        self.world.dispatcher.nack(self.one(place), [(first, first + count)], 0)
        self.world.pump()

    @precondition(lambda self: self.has_begun)
    @rule(change=st.sampled_from(["restart", "shared and back", "seek", "trim"]), to=offsets)
    def turn_over(self, change: str, to: int) -> None:
        world = self.world
        world.durable()
        if change == "trim":
            starts = [batch.first_offset for batch in world.log.batches if batch.first_offset <= to]
            to = world.first_offset = max(world.first_offset, *starts)
            world.cursor.skip_to(to)
            world.dispatcher.skip_to(to)
            for offset in list(world.holder):
                if offset < to:
                    del world.holder[offset]
            return
        for consumer in list(world.consumers):
            world.dispatcher.detach(consumer)
        if change == "seek":
            if not world.cursor.pending:
                world.cursor.move_floor(max(world.first_offset, min(to, world.log.end)))
                world.dispatcher.restart()
            return
        previous = world.dispatcher
        if change == "shared and back":
            other = Dispatcher(world.cursor, 0)
            other.inherit(previous)
            previous = other
        world.dispatcher = world.new_dispatcher()
        if change != "restart":
            world.dispatcher.inherit(previous)

    @invariant()
    def every_pending_offset_is_in_exactly_one_place(self) -> None:
        if not self.has_begun:
            return
        world, dispatcher = self.world, self.world.dispatcher
        dispatcher.check()
        cursor = world.cursor
        withheld = members(dispatcher.withheld)
        unread = set(range(dispatcher.read_offset, world.log.end)) - withheld
        unread = {o for o in unread if not cursor.unavailable_mask(o, o)}
        places = [unread, members(dispatcher.replay), withheld]
        places += [members(consumer.held) for consumer in world.consumers]
        together = sorted(offset for place in places for offset in place)
        assert together == [
            offset for offset in range(world.log.end) if not cursor.unavailable_mask(offset, offset)
        ]

    def teardown(self) -> None:
        if self.has_begun:
            self.world.drain()


TestKeyShared = KeySharedMachine.TestCase
TestKeyShared.settings = settings(max_examples=120, stateful_step_count=40)


class LateAcks(KeySharedMachine):
    """Acks come from anybody, for anything: a slot that two consumers have waits for both."""

    @precondition(lambda self: self.has_begun)
    @rule(first=offsets, count=st.integers(0, 6), consumer=st.integers(0, 5), txn=st.booleans())
    def late(self, first: int, count: int, consumer: int, txn: bool) -> None:
        world = self.world
        world.acks_come_late = True
        last = min(first + count, world.log.end - 1)
        if first > last or {first, last} & world.log.message.keys():
            return  # Of a message in parts, consumers acknowledge all.
        if txn:
            world.pend([(first, last)], consumer)
        else:
            world.acknowledge((first, last))
        world.pump()


TestLateAcks = LateAcks.TestCase
TestLateAcks.settings = settings(max_examples=120, stateful_step_count=40)


# One case each


def two_consumers(log: Log, **options: int) -> tuple[Harness, Consumer]:
    world = Harness(log, **options)
    return world, world.attach(1, permits=100)


def offsets_to(world: Harness, consumer_id: int) -> list[int]:
    return [offset for offset, one in world.history if one == consumer_id]


def a_key_that_moves_to(consumer_id: int) -> bytes:
    """One that is consumer 1's while that is alone, and then the other's."""
    world = Harness(Log())
    world.attach(1)
    world.attach(consumer_id)
    targets = world.dispatcher._targets  # type: ignore[attr-defined]
    return next(
        key
        for key in (b"key %d" % number for number in range(1000))
        if targets.of(slot_of(key)) == consumer_id
    )


def test_a_slot_moves_when_the_last_of_it_is_durably_acknowledged() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_keys(key, key)
    world, _ = two_consumers(log)
    world.pump()
    world.attach(2, permits=100)
    log.add_keys(key)
    world.pump()
    world.acknowledge((0, 0))
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [], "offset 1 is unsettled"
    world.acknowledge((1, 1))
    world.pump()
    assert offsets_to(world, 2) == [], "its ack is not durable"
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [2]
    assert offsets_to(world, 1) == [0, 1], "who has to give a key up gets nothing new of it"


def test_a_pending_ack_keeps_its_slot_with_who_acknowledged_it() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_keys(key)
    world, _ = two_consumers(log)
    world.pump()
    world.pend([(0, 0)], 1)
    world.attach(2, permits=100)
    log.add_keys(key)
    world.pump()
    assert offsets_to(world, 2) == []
    world.end(0)
    world.pump()
    assert offsets_to(world, 2) == [], "that it is PENDING again is not durable"
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [0, 1]


def test_a_pending_ack_of_a_removed_message_is_gone_after_its_abort() -> None:
    """Retention removed it, and the broker started again, before the transaction aborted.

    Its slot stayed unsettled, and the next read began at a message that no longer exists.
    """
    machine = LateAcks()
    machine.begin(seed=0)
    machine.late(0, 0, 0, txn=True)
    machine.turn_over("trim", 38)
    machine.turn_over("restart", 0)
    machine.end(0)
    machine.every_pending_offset_is_in_exactly_one_place()


def test_a_slot_that_has_to_move_holds_up_no_other() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    others = [one for one in (b"x%d" % n for n in range(50)) if slot_of(one) != slot_of(key)]
    log.add_keys(key)
    world, _ = two_consumers(log, waiting_max=100)
    world.pump()
    world.attach(2, permits=1000)
    for one in others:
        log.add_keys(one, key)
    world.pump()
    delivered = {offset for offset, _ in world.history}
    assert delivered == {0} | {o for o in range(log.end) if log.slots[o] != slot_of(key)}


def test_reading_pauses_when_too_much_waits() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_keys(key)
    world, _ = two_consumers(log, waiting_max=6)
    world.pump()
    world.attach(2, permits=1000)
    for _ in range(10):
        log.add_keys(key, key)
    world.pump()
    assert len(world.dispatcher.replay) == 6
    world.acknowledge((0, 0))
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == list(range(1, log.end))


def test_what_comes_back_goes_to_the_holder_while_it_holds_more_of_the_slot() -> None:
    """Else one that acknowledges in order could never settle the rest."""
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_keys(key, key)
    world, first = two_consumers(log)
    world.pump()
    world.attach(2, permits=100)
    log.add_keys(key)
    world.dispatcher.nack(first, [(0, 0)], 0)
    world.pump()
    assert offsets_to(world, 1) == [0, 1, 0]
    world.dispatcher.nack(first, [(0, 1)], 0)
    world.pump()
    assert offsets_to(world, 2) == [0, 1, 2], "nothing is unsettled: it moves, in order"


def test_of_a_slot_that_two_consumers_have_nothing_new_goes_out() -> None:
    """One holds some of it, a late ack of the other pends: neither may get more."""
    log = Log()
    key = a_key_that_moves_to(2)
    for _ in range(3):
        log.add_keys(key)
    world = Harness(log)
    second = world.attach(2, permits=2)
    world.pump()
    assert offsets_to(world, 2) == [0, 1]
    world.dispatcher.detach(second)
    first = world.attach(1, permits=1)
    world.pump()
    assert offsets_to(world, 1) == [0]
    world.attach(2, permits=100)
    world.pend([(1, 1)], 2)
    first.permits = 100
    world.pump()
    assert len(world.history) == 3, "one of the two would have to wait for the other"
    world.acknowledge((0, 0))
    world.durable()
    world.pump()
    assert len(world.history) == 3
    world.end(1)
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [0, 1, 2]


def test_what_comes_back_does_not_overtake_what_was_never_out() -> None:
    """A transaction may acknowledge what was not received yet; then it is aborted."""
    log = Log()
    key = a_key_that_moves_to(2)
    for _ in range(3):
        log.add_keys(key)
    world = Harness(log)
    first = world.attach(1, permits=1)
    world.pump()
    world.attach(2, permits=100)
    world.pump()
    first.permits = 100
    world.pend([(2, 2)], 1)
    world.end(0)
    world.durable()
    world.pump()
    assert world.history == [(0, 1)]
    world.acknowledge((0, 0))
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [1, 2]


def test_what_is_withheld_keeps_its_slot() -> None:
    """Read anew, as after a change of type, and before the abort that brings it back is durable."""
    log = Log()
    log.add_keys(KEYS[0], KEYS[0])
    log.add_keys(KEYS[0])
    world = Harness(log)
    world.pend([(1, 1)], 1)
    world.end(0)
    world.attach(1, permits=100)
    world.pump()
    assert world.history == []
    world.durable()
    world.pump()
    assert offsets_to(world, 1) == [0, 1, 2]


def test_a_message_in_parts_is_completed_although_its_slot_has_to_move() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_parts(key)
    log.add_keys(key)
    world, first = two_consumers(log)
    first.permits = 1
    world.pump()
    assert offsets_to(world, 1) == [0]
    world.attach(2, permits=100)
    first.permits = 100
    world.pump()
    parts = log.end - 1
    assert parts > 2
    assert offsets_to(world, 1) == list(range(parts))
    assert offsets_to(world, 2) == []
    world.acknowledge((0, parts - 1))
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [parts]


def test_other_messages_do_not_come_between_the_parts_of_one() -> None:
    log = Log()
    log.add_keys(b"a")
    log.add_parts(b"b")
    world, first = two_consumers(log)
    first.permits = 2
    world.pump()
    world.dispatcher.nack(first, [(0, 0)], 0)
    first.permits = 100
    world.pump()
    assert [offset for offset, _ in world.history] == [*range(log.end), 0]


def test_after_a_restart_a_pending_ack_is_read_before_anything_goes_out() -> None:
    log = Log()
    key = a_key_that_moves_to(2)
    for _ in range(3):
        log.add_keys(b"before", b"other")
    log.add_keys(key)
    log.add_keys(key)
    world, _ = two_consumers(log)
    pending = log.end - 2
    world.pend([(pending, pending)], 1)
    world.dispatcher = world.new_dispatcher()
    world.attach(2, permits=100)
    assert world.dispatcher.next_offset(log.end) == pending
    world.pump()
    assert offsets_to(world, 2) == list(range(pending)), "the key waits, the others do not"
    world.end(1)
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [*range(pending), log.end - 1]


def test_after_a_restart_who_acknowledged_gets_more_of_its_keys() -> None:
    """A transaction may need it, to be completed."""
    log = Log()
    log.add_keys(b"k", b"k")
    world, _ = two_consumers(log)
    world.pend([(0, 0)], 1)
    world.dispatcher = world.new_dispatcher()
    world.attach(1, permits=100)
    world.pump()
    assert offsets_to(world, 1) == [1]


def test_a_late_ack_takes_its_message_from_who_has_it_by_now() -> None:
    """In a transaction that is still open: who had the message gets no more of its key."""
    log = Log()
    log.add_keys(b"k", b"other")
    world, first = two_consumers(log)
    world.pump()
    world.dispatcher.detach(first)
    world.attach(2, permits=100)
    world.pump()
    assert offsets_to(world, 2) == [0, 1]
    world.pend([(0, 0)], 1)
    log.add_keys(b"k", b"other")
    world.pump()
    assert offsets_to(world, 2) == [0, 1, 3], "the other key goes on"
    world.end(1)
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [0, 1, 3, 2]


def test_a_message_in_parts_is_completed_although_a_late_ack_took_one_before_it() -> None:
    """Who has its beginning could not settle it otherwise, nor could anybody have the key again."""
    log = Log()
    log.add_keys(b"k")
    log.add_parts(b"k")
    log.add_keys(b"k")
    world, first = two_consumers(log)
    world.acks_come_late = True
    first.permits = 1
    world.pump()
    world.dispatcher.detach(first)
    second = world.attach(2, permits=2)
    world.pump()
    assert offsets_to(world, 2) == [0, 1]
    world.pend([(0, 0)], 1)
    second.permits = 100
    world.pump()
    assert offsets_to(world, 2) == list(range(log.end - 1)), "the message, and nothing behind it"
    world.acknowledge((1, log.end - 2))
    world.end(1)
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == list(range(log.end))


def test_who_acknowledged_before_an_abort_has_no_claim_to_the_key() -> None:
    """The abort comes before the broker has learned the key, and another one acknowledges next."""
    log = Log()
    key = a_key_that_moves_to(2)
    log.add_keys(key)
    world, _ = two_consumers(log)
    world.pend([(0, 0)], 2)
    world.dispatcher = world.new_dispatcher()
    first = world.attach(1)
    world.end(0)
    world.durable()
    first.permits = 100
    world.pump()
    assert offsets_to(world, 1) == [0]
    world.dispatcher.detach(first)
    world.pend([(0, 0)], 1)
    world.attach(2, permits=100)
    log.add_keys(key)
    world.pump()
    assert offsets_to(world, 2) == [], "message 0 is pending for consumer 1"
    world.end(1)
    world.durable()
    world.pump()
    assert offsets_to(world, 2) == [1]


@pytest.mark.parametrize("consumers", [1, 3, 10])
def test_consumers_share_keys(consumers: int) -> None:
    log = Log()
    for number in range(100):
        log.add_keys(*(b"key %d" % (10 * number + one) for one in range(10)))
    world = Harness(log, waiting_max=10_000)
    for number in range(consumers):
        world.attach(number + 1, permits=10_000)
    while (offset := world.dispatcher.next_offset(log.end)) is not None:
        world.dispatcher.hand_out(log.holding(offset))
    counts = [len(consumer.held) for consumer in world.consumers]
    assert sum(counts) == log.end
    assert min(counts) > 0.5 * log.end / consumers
