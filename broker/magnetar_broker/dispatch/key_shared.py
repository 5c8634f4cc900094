"""Dispatcher for KEY_SHARED: order is kept per key, and each key has a consumer at a time. Pure.

Keys are grouped into slots (`key_ranges`). Of each slot, this module keeps where its messages are:

    place         state of the message                               counts in its slot as
    (outside)     not read yet                                       -
    WAITING       read; waits for permits, a move or a redelivery    waiting
    DELIVERED     a consumer holds it                                unsettled
    ACK_PENDING   acknowledged in an open transaction                unsettled
    ACK_UNSYNCED  acknowledged, but not durably                      unsettled
    WITHHELD      back from an abort that is not durable yet         withheld
    (outside)     durably acknowledged, or acknowledged by a
                  consumer that did not hold it                      -

`_move` is the only method that changes places. A message in one of the last three places may be
unplaced: after a restart nothing says which slot it has. It counts in no slot until its batch is
read, which comes before any message goes out.

An unsettled slot belongs to the consumer of its unsettled messages, its holder; a settled slot goes
to its target. A slot whose holder is not its target has to move: it gets no new messages, so that
it becomes settled. Returned messages go to the holder even then: it may need them to settle the
rest. A slot with a withheld message waits. Within a slot, messages go out in the order of their
offsets.
Source: PIP-379, Updated contract of preserving ordering; docs/design/0004-key-shared.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum

from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.dispatch.dispatch import (
    CONTINUED,
    Assignment,
    Consumer,
    Dispatcher,
    SubscriptionType,
)
from magnetar_broker.dispatch.key_ranges import EMPTY_KEY_SLOT, Targets
from magnetar_broker.dispatch.key_slots import KnownSlots, slots_of
from magnetar_broker.log.offset_set import OffsetSet, Range, ranges_of_mask
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_core.batch import part_of

# Stands for the holder's id when several consumers, or an unknown consumer, have messages of the
# slot.
NOBODY = -1


class Place(IntEnum):
    """A place of a message; see the table above."""

    OUTSIDE = 0
    WAITING = 1
    WITHHELD = 2
    DELIVERED = 3
    ACK_PENDING = 4
    ACK_UNSYNCED = 5


OUTSIDE, WAITING, WITHHELD, DELIVERED, ACK_PENDING, ACK_UNSYNCED = Place
# While a slot has messages in these places, it stays with its holder.
UNSETTLED = (DELIVERED, ACK_PENDING, ACK_UNSYNCED)


class Slot:
    """Messages of a slot that are under way."""

    __slots__ = ("flows", "holder", "number", "queue", "unsettled", "waiting", "withheld")

    def __init__(self, number: int) -> None:
        self.number = number
        # Id of the consumer that has the unsettled messages; meaningless while there are none.
        self.holder = NOBODY
        self.unsettled = 0
        self.withheld = 0
        self.waiting = OffsetSet()
        # Queue of the consumer that gets the waiting messages, or some of them.
        self.queue: OffsetSet | None = None
        # Whether the queue has all waiting messages, and gets new ones.
        self.flows = False

    @property
    def is_idle(self) -> bool:
        """Whether no message of the slot is under way."""
        return not (self.unsettled or self.withheld or self.waiting)


class KeySharedDispatcher(Dispatcher):
    """Dispatch state of a Key_Shared subscription on a partition.

    Args:
        waiting_max: with this many messages that were read ahead and wait, no new message is read.
        pending_acks: yields the ranges in PENDING_ACK, and the ids of their consumers.
    """

    def __init__(
        self,
        cursor: Acknowledgements,
        partition_number: int,
        *,
        waiting_max: int,
        pending_acks: Iterable[tuple[int, Range]] = (),
    ) -> None:
        super().__init__(cursor, partition_number)
        self.type = SubscriptionType.KEY_SHARED
        self._waiting_max = waiting_max
        self._targets = Targets()
        self._known = KnownSlots()
        # Slots that are not idle.
        self._slots: dict[int, Slot] = {}
        # Waiting messages that may go to each consumer.
        self._queues: dict[int, OffsetSet] = {}
        self._delivered = OffsetSet()
        self._ack_pending = cursor.pending.copy()
        self._ack_unsynced = OffsetSet()
        # The messages in each place. Those outside have no set.
        self._at = {
            WAITING: self.replay,
            WITHHELD: self.withheld,
            DELIVERED: self._delivered,
            ACK_PENDING: self._ack_pending,
            ACK_UNSYNCED: self._ack_unsynced,
        }
        # Messages in a place whose slots are unknown. And who acknowledged which of them.
        self._unplaced = cursor.pending.copy()
        self._ackers: dict[int, OffsetSet] = {}
        for consumer_id, (first, last) in pending_acks:
            self._ackers.setdefault(consumer_id, OffsetSet()).add(first, last)
        # The offset after the last learned part of a message, and the message's slot.
        self._last_part: tuple[int, int] | None = None
        # The next part for each consumer that got a part of a message.
        self._next_parts: dict[int, int] = {}

    def inherit(self, previous: Dispatcher) -> None:
        """Take the place of another dispatcher, whose consumers are all gone."""
        super().inherit(previous)
        self._unplaced.update(self.withheld)

    def check(self) -> None:
        """Check the invariants."""
        super().check()
        everywhere = OffsetSet()
        for offsets in self._at.values():
            assert not everywhere.intersection(offsets)
            everywhere.update(offsets)
        for queue in self._queues.values():
            assert queue.intersection(self.replay) == queue
        # What each place means.
        held = OffsetSet()
        for consumer in self.consumers:
            held.update(consumer.held)
        assert held == self._delivered
        assert self._ack_pending.intersection(self.cursor.pending) == self._ack_pending
        assert all(
            self.cursor.is_deleted(offset)
            for first, last in self._ack_unsynced.ranges()
            for offset in (first, last)
        )
        # Which messages are unplaced.
        unknown = OffsetSet()
        for place, offsets in self._at.items():
            unplaced = self._without_known(offsets)
            assert not unplaced or place not in (WAITING, DELIVERED)
            unknown.update(unplaced)
        assert unknown == self._unplaced
        for acknowledged in self._ackers.values():
            assert acknowledged.intersection(self._unplaced) == acknowledged
        # What each slot counts.
        slots = self._slots
        assert not any(slot.is_idle for slot in slots.values())
        unsettled = {number: slot.unsettled for number, slot in slots.items() if slot.unsettled}
        assert unsettled == self._counts(*UNSETTLED)
        withheld = {number: slot.withheld for number, slot in slots.items() if slot.withheld}
        assert withheld == self._counts(WITHHELD)
        waiting = {number: len(slot.waiting) for number, slot in slots.items() if slot.waiting}
        assert waiting == self._counts(WAITING)
        for slot in slots.values():
            assert slot.waiting.intersection(self.replay) == slot.waiting
            assert slot.queue is None or any(slot.queue is queue for queue in self._queues.values())
            assert not slot.flows or slot.queue is not None
        for consumer in self.consumers:
            for number, _, _ in self._runs(consumer.held):
                assert slots[number].holder in (consumer.consumer_id, NOBODY)

    def _counts(self, *places: Place) -> Counter[int]:
        """Count the messages in these places by slot."""
        counts: Counter[int] = Counter()
        for place in places:
            for number, first, last in self._runs(self._at[place]):
                counts[number] += last - first + 1
        return counts

    # Consumers

    def attach(self, consumer: Consumer, subscription_type: SubscriptionType) -> None:
        """Attach a consumer; it becomes the target of its share of the slots."""
        super().attach(consumer, subscription_type)
        self._targets.add(consumer.consumer_id, consumer.name)
        self._queues[consumer.consumer_id] = OffsetSet()
        self._route(self._slots)

    def detach(self, consumer: Consumer, *, vanished: bool = False) -> None:
        """Detach a consumer; its slots get other targets."""
        if consumer not in self.consumers:
            return
        self._targets.remove(consumer.consumer_id)
        del self._queues[consumer.consumer_id]
        self._next_parts.pop(consumer.consumer_id, None)
        super().detach(consumer, vanished=vanished)
        self._route(self._slots)

    def _choose_active(self) -> None:
        self.active = None

    # Acknowledgements and redelivery

    def acknowledged(self, ranges: Iterable[Range]) -> OffsetSet:
        """Forget offsets that are DELETED.

        Returns:
            The offsets to pass to settle() once the ack is durable.
        """
        ranges = list(ranges)
        for first, last in ranges:
            self.redeliveries.forget(first, last)
        # A consumer acknowledges messages that it lost. In these places they do not block their
        # slots for other consumers.
        self._move(self.replay.within(ranges), WAITING, OUTSIDE)
        self._move(self.withheld.within(ranges), WITHHELD, OUTSIDE)
        delivered = self._delivered.within(ranges)
        self._move(delivered, DELIVERED, ACK_UNSYNCED)
        pending = self._ack_pending.within(ranges)
        self._move(pending, ACK_PENDING, ACK_UNSYNCED)
        self._forget_settled(ranges)
        delivered.update(pending)
        return delivered

    def settle(self, offsets: OffsetSet) -> None:
        """Note that the ack of these offsets is durable."""
        gone = offsets.intersection(self._ack_unsynced)
        self._move(gone, ACK_UNSYNCED, OUTSIDE)
        self._forget_settled(gone.ranges())

    def pend(self, ranges: Iterable[Range], consumer_id: int = 0) -> None:
        """Keep offsets in PENDING_ACK, and count them in their slots."""
        ranges = list(ranges)
        late = self._delivered.within(ranges)
        for consumer in self.consumers:
            if consumer.consumer_id == consumer_id:
                held = consumer.held.intersection(late)
                late.difference_update(held)
                self._move(held, DELIVERED, ACK_PENDING)
        # A consumer acknowledges messages that it lost and that others got meanwhile: from now on
        # they belong to the consumer that acknowledged.
        self._move(late, DELIVERED, OUTSIDE)
        # It lost these messages, and others did not get them yet.
        for place in (WAITING, WITHHELD):
            self._move(self._at[place].within(ranges), place, ACK_PENDING, consumer_id)
        others = OffsetSet(ranges)
        for place in UNSETTLED:
            others.difference_update(self._at[place])
        self._move(others, OUTSIDE, ACK_PENDING, consumer_id)

    def withhold(self, offsets: OffsetSet) -> None:
        """Keep offsets that are PENDING again until release() lets them go out."""
        self._move(offsets, ACK_PENDING, WITHHELD)

    def release(self, offsets: OffsetSet) -> None:
        """Deliver withheld offsets again, if they are still PENDING."""
        released = offsets.intersection(self.withheld)
        self.redeliveries.raise_for(released)
        read = self._read_of(released)
        self._move(read, WITHHELD, WAITING)
        # The others were not read yet: they come by themselves.
        released.difference_update(read)
        self._move(released, WITHHELD, OUTSIDE)

    def restart(self) -> None:
        """Restart at the cursor's floor: the cursor was moved."""
        super().restart()
        self._known.clear()
        self._slots.clear()
        for offsets in (*self._at.values(), *self._queues.values()):
            offsets.clear()
        self._ack_pending.update(self.cursor.pending)
        self._unplaced = self.cursor.pending.copy()
        self._ackers.clear()
        self._next_parts.clear()

    def skip_to(self, first_offset: int) -> None:
        """Skip offsets below first_offset, which retention removed."""
        self.read_offset = max(self.read_offset, first_offset)
        if first_offset:
            # Removed messages are gone without any durable ack.
            removed = [(0, first_offset - 1)]
            self.acknowledged(removed)
            self.settle(self._ack_unsynced.within(removed))
            for start, end in self._known.batches(0, first_offset - 1):
                if end < first_offset:
                    self._known.forget(start)

    def _give_back(self, offsets: OffsetSet) -> None:
        self._move(offsets, DELIVERED, WAITING)

    # Delivery

    def next_offset(self, end_offset: int) -> int | None:
        """Return the next offset to read; None if no consumer is ready or no message is there."""
        ready = [consumer for consumer in self.consumers if consumer.is_ready]
        if not ready:
            return None
        if self._unplaced:
            return self._unplaced.first()
        lowest: int | None = None
        for consumer in ready:
            offset = self._next_of(consumer)
            if offset is not None and offset < end_offset and (lowest is None or offset < lowest):
                lowest = offset
        if lowest is None and self.read_offset < end_offset:
            return self.read_offset if len(self.replay) < self._waiting_max else None
        return lowest

    def hand_out(self, stored: StoredBatch) -> list[Assignment]:
        """Give messages of a stored batch to the consumers of their slots."""
        first, last = stored.first_offset, stored.end - 1
        self._learn(stored)
        if self._unplaced:
            self._place(first, last)
            return []
        if last >= self.read_offset:
            self._read(max(first, self.read_offset), last)
        assignments: list[Assignment] = []
        for consumer in self.consumers:
            while consumer.is_ready:
                wanted = self._wanted(consumer, first, last)
                if not wanted:
                    break
                assignments.append(self._give(consumer, stored, wanted))
        return assignments

    def _learn(self, stored: StoredBatch) -> None:
        first = stored.first_offset
        if self._known.knows(first):
            return
        slots = slots_of(stored.batch)
        if slots is None:
            slots = self._slot_of_next_part(first)
        if isinstance(slots, int) and part_of(stored.batch) in CONTINUED:
            self._last_part = (stored.end, slots)
        self._known.add(first, stored.end - 1, slots)

    def _slot_of_next_part(self, first: int) -> int:
        if self._last_part is not None and self._last_part[0] == first:
            return self._last_part[1]
        slot = self._known.slot_at(first - 1)
        # The first part of the message was acknowledged long ago: the message can no longer be
        # put together.
        return EMPTY_KEY_SLOT if slot is None else slot

    def _read(self, first: int, last: int) -> None:
        """Let PENDING messages of a batch with known slots wait from now on."""
        self.read_offset = last + 1
        unavailable = self.cursor.unavailable_mask(first, last) | self.withheld.mask(first, last)
        if unavailable:
            fresh = ~unavailable & ((1 << (last - first + 1)) - 1)
            offsets = OffsetSet(ranges_of_mask(fresh, first))
            self._move(offsets, OUTSIDE, WAITING)
            self._forget_settled([(first, last)])
        else:
            self._move(OffsetSet([(first, last)]), OUTSIDE, WAITING)

    def _wanted(self, consumer: Consumer, first: int, last: int) -> int:
        """Return the messages for a consumer, as a mask: in order, with one redelivery count."""
        part = self._next_part_of(consumer)
        if part is not None:
            return 1 if part == first else 0
        wanted = self._queues[consumer.consumer_id].mask(first, last)
        if not wanted:
            return 0
        self.redeliveries.go_out(first, wanted)
        _, alike = self.redeliveries.alike(first, wanted)
        others = wanted & ~alike
        return wanted & ((others & -others) - 1) if others else wanted

    def _give(self, consumer: Consumer, stored: StoredBatch, wanted: int) -> Assignment:
        first, consumer_id = stored.first_offset, consumer.consumer_id
        given = OffsetSet(ranges_of_mask(wanted, first))
        self._move(given, WAITING, DELIVERED, consumer_id)
        consumer.held.update(given)
        consumer.use_permits(wanted.bit_count(), len(stored.batch))
        self._next_parts.pop(consumer_id, None)
        if part_of(stored.batch) in CONTINUED:
            self._next_parts[consumer_id] = stored.end
        redelivery_count, _ = self.redeliveries.alike(first, wanted)
        excluded = ~wanted & ((1 << stored.count) - 1)
        return Assignment(consumer, tuple(ranges_of_mask(excluded, first)), redelivery_count)

    def _next_of(self, consumer: Consumer) -> int | None:
        """Return the next message that may go to a consumer."""
        part = self._next_part_of(consumer)
        if part is not None:
            return part
        queue = self._queues[consumer.consumer_id]
        return queue.first() if queue else None

    def _next_part_of(self, consumer: Consumer) -> int | None:
        """Return the next part of a message that the consumer has begun.

        It goes out even while its slot must move, or while others have messages of the slot:
        otherwise the consumer could never put the message together, nor settle it.
        """
        part = self._next_parts.get(consumer.consumer_id)
        if part is None:
            return None
        number = self._known.slot_at(part - 1)
        slot = self._slots.get(number) if number is not None else None
        is_holder = slot is not None and slot.unsettled and slot.holder == consumer.consumer_id
        if is_holder or part - 1 in consumer.held:
            if part in self.replay:
                return part
            is_next = part == self.read_offset and part not in self.withheld
            if is_next and not self.cursor.unavailable_mask(part, part):
                return part
        del self._next_parts[consumer.consumer_id]
        return None

    # Places and slots

    def _move(self, offsets: OffsetSet, source: Place, target: Place, holder: int = NOBODY) -> None:
        """Move messages to another place, count them in their slots, and route these.

        Args:
            holder: the consumer for which they count, if they become unsettled.
        """
        if not offsets:
            return
        if source is not OUTSIDE:
            self._at[source].difference_update(offsets)
        if target is not OUTSIDE:
            self._at[target].update(offsets)
        if self._unplaced or (source is OUTSIDE and target is not WAITING):
            self._note_unplaced(offsets, target, holder)
        if source is DELIVERED:
            for consumer in self.consumers:
                consumer.held.difference_update(offsets)
        if source in UNSETTLED and target in UNSETTLED:
            return  # They count as they did, and for the same holder.
        if source is WAITING:
            queues = [self._queues[holder]] if target is DELIVERED else self._queues.values()
            for queue in queues:
                queue.difference_update(offsets)
        slots, changed = self._slots, dict[int, Slot]()
        for number, first, last in self._runs(offsets):
            slot = slots.get(number)
            if slot is None:
                slot = slots[number] = Slot(number)
            if source in UNSETTLED:
                slot.unsettled -= last - first + 1
            elif source is WAITING:
                slot.waiting.discard(first, last)
            elif source is WITHHELD:
                slot.withheld -= last - first + 1
            if target in UNSETTLED:
                if not slot.unsettled:
                    slot.holder = holder
                elif slot.holder != holder:
                    slot.holder = NOBODY
                slot.unsettled += last - first + 1
            elif target is WAITING:
                slot.waiting.add(first, last)
                if slot.flows and slot.queue is not None and source is OUTSIDE:
                    slot.queue.add(first, last)
                    continue
            elif target is WITHHELD:
                slot.withheld += last - first + 1
            changed[number] = slot
        if target is not DELIVERED:
            # A delivered message comes from the queue where the rest of its slot stays.
            self._route(changed)

    def _note_unplaced(self, offsets: OffsetSet, target: Place, holder: int) -> None:
        """Note which of the moved messages are unplaced, and who acknowledged these."""
        if target is ACK_UNSYNCED:
            return  # They stay unplaced, and count for the same consumer.
        self._unplaced.difference_update(offsets)
        for acknowledged in self._ackers.values():
            acknowledged.difference_update(offsets)
        if target is OUTSIDE:
            return
        unplaced = self._without_known(offsets)
        self._unplaced.update(unplaced)
        if unplaced and target is ACK_PENDING:
            self._ackers.setdefault(holder, OffsetSet()).update(unplaced)

    def _place(self, first: int, last: int) -> None:
        """Count the unplaced messages of a range whose slots are known by now."""
        found = self._unplaced.within(self._known.batches(first, last))
        self._unplaced.difference_update(found)
        # They stay where they are: a move from outside counts them there.
        for place in (WITHHELD, ACK_PENDING, ACK_UNSYNCED):
            here = found.intersection(self._at[place])
            for consumer_id, acknowledged in self._ackers.items():
                own = here.intersection(acknowledged)
                here.difference_update(own)
                acknowledged.difference_update(own)
                self._move(own, OUTSIDE, place, consumer_id)
            self._move(here, OUTSIDE, place)
        if not self._unplaced:
            self._ackers.clear()

    def _without_known(self, offsets: OffsetSet) -> OffsetSet:
        """Return those of the offsets whose slots are unknown."""
        unknown = offsets.copy()
        for _, first, last in self._runs(offsets):
            unknown.discard(first, last)
        return unknown

    def _route(self, slots: dict[int, Slot]) -> None:
        """Queue waiting messages of these slots for the consumer that may get them, if any."""
        for slot in list(slots.values()):
            if slot.queue is not None:
                slot.queue.difference_update(slot.waiting)
            slot.queue, slot.flows = None, False
            if slot.is_idle:
                self._slots.pop(slot.number, None)
                continue
            if slot.withheld:
                continue
            target = self._targets.of(slot.number)
            if not slot.unsettled or slot.holder == target:
                slot.queue = self._queues.get(target) if target is not None else None
                slot.flows = slot.queue is not None
                if slot.queue is not None:
                    slot.queue.update(slot.waiting)
            elif slot.holder in self._queues and slot.waiting:
                slot.queue = self._queues[slot.holder]
                slot.queue.update(self._returned_of(slot))

    def _returned_of(self, slot: Slot) -> OffsetSet:
        """Return messages that a consumer had before; they come before all others."""
        returned = self.redeliveries.returned(slot.waiting)
        never = slot.waiting.copy()
        never.difference_update(returned)
        return returned.within([(0, never.first())]) if never else returned

    def _runs(self, offsets: OffsetSet) -> Iterator[tuple[int, int, int]]:
        return self._known.runs_of(offsets.ranges())

    def _read_of(self, offsets: OffsetSet) -> OffsetSet:
        return offsets.within([(0, self.read_offset - 1)] if self.read_offset else [])

    def _forget_settled(self, ranges: Iterable[Range]) -> None:
        """Forget the slots of batches whose messages are all DELETED."""
        start, end = 0, -1
        for first, last in ranges:
            if start <= first and last <= end:
                continue  # The range lies in the batch that was checked last.
            for start, end in self._known.batches(first, last):
                if self._is_settled(start, end):
                    self._known.forget(start)

    def _is_settled(self, first: int, last: int) -> bool:
        if self._ack_unsynced.intersects(first, last):
            return False
        pending = self.cursor.pending.mask(first, last)
        deleted = self.cursor.unavailable_mask(first, last) & ~pending
        return deleted == (1 << (last - first + 1)) - 1
