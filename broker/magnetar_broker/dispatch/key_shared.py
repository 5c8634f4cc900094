"""Dispatcher for KEY_SHARED: order is kept per key, and each key has a consumer at a time. Pure.

Keys are grouped into slots (`key_ranges`). A slot is unsettled while any of its messages is held by
a consumer, in PENDING_ACK, or acknowledged but not durably. Meanwhile the slot belongs to the
consumer of those messages, its holder; afterwards it goes to its target. A slot whose holder is not
its target has to move: it gets no new messages, so that it becomes settled. Returned messages go to
the holder even then: it may need them to settle the rest.

Within a slot messages go out in the order of their offsets. `replay` holds all messages that were
read and wait: for permits, for a move, or for redelivery. A slot with a message in `withheld` waits
too.
Source: PIP-379, Updated contract of preserving ordering; docs/design/0004-key-shared.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        # Waiting messages that may go to each consumer. Subsets of `replay`.
        self._queues: dict[int, OffsetSet] = {}
        # Offsets that are counted in the `unsettled` of slots.
        self._unsettled = OffsetSet()
        # Unsettled offsets that are acknowledged, but not durably.
        self._settling = OffsetSet()
        # Offsets of `withheld` that slots count.
        self._held_back = OffsetSet()
        # Offsets in PENDING_ACK, settling or withheld, whose slots are unknown: the slots are
        # learned before any message goes out. And who acknowledged which of them.
        self._unplaced = cursor.pending.copy()
        self._ackers: dict[int, OffsetSet] = {}
        for consumer_id, (first, last) in pending_acks:
            self._ackers.setdefault(consumer_id, OffsetSet()).add(first, last)
        # The offset after the last learned part of a message, and the message's slot.
        self._last_part: tuple[int, int] | None = None
        # The next part for each consumer that got a part of a message.
        self._next_parts: dict[int, int] = {}

    def inherit(self, previous: Dispatcher) -> None:
        """Take the place of another dispatcher, which has no consumers any more."""
        super().inherit(previous)
        self._unplaced.update(self.withheld)

    def check(self) -> None:
        """Check the invariants."""
        super().check()
        unsettled: dict[int, int] = {}
        for number, first, last in self._runs(self._unsettled):
            unsettled[number] = unsettled.get(number, 0) + last - first + 1
        together = OffsetSet()
        for number, slot in self._slots.items():
            assert not slot.is_idle
            assert slot.unsettled == unsettled.pop(number, 0)
            together.update(slot.waiting)
            assert slot.queue is None or any(slot.queue is one for one in self._queues.values())
            assert not slot.flows or slot.queue is not None
        assert not unsettled
        assert together == self.replay
        for consumer in self.consumers:
            assert consumer.held.intersection(self._unsettled) == consumer.held
            for number, _, _ in self._runs(consumer.held):
                assert self._slots[number].holder in (consumer.consumer_id, NOBODY)
        for queue in self._queues.values():
            assert queue.intersection(self.replay) == queue

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
            self.withheld.discard(first, last)
        self._count_withheld(self._held_back.within(ranges), -1)
        self._stop_waiting(self.replay.within(ranges))
        gone = self._unsettled.within(ranges)
        gone.update(self._unplaced.within(ranges))
        for consumer in self.consumers:
            consumer.held.difference_update(gone)
        self._settling.update(gone)
        self._forget_settled(ranges)
        return gone

    def settle(self, offsets: OffsetSet) -> None:
        """Note that the ack of these offsets is durable."""
        gone = offsets.intersection(self._settling)
        self._settling.difference_update(gone)
        self._unplaced.difference_update(gone)
        self._count_settled(gone.intersection(self._unsettled))
        self._forget_settled(gone.ranges())

    def pend(self, ranges: Iterable[Range], consumer_id: int = 0) -> None:
        """Keep offsets in PENDING_ACK, and count them in their slots."""
        ranges = list(ranges)
        taken = OffsetSet()
        for consumer in self.consumers:
            held = consumer.held.within(ranges)
            consumer.held.difference_update(held)
            if consumer.consumer_id != consumer_id:
                taken.update(held)
        if taken:
            # A consumer that lost them acknowledges late, and others got them meanwhile: from now
            # on they count for who acknowledged.
            self._count_settled(taken)
            self._hold(taken, consumer_id)
        # Offsets that nobody held: a consumer that lost them acknowledges late, or they were not
        # read yet.
        self._stop_waiting(self.replay.within(ranges))
        self._count_withheld(self._held_back.within(ranges), -1)
        others = OffsetSet(ranges)
        others.difference_update(self._unsettled)
        for first, last in ranges:
            self.withheld.discard(first, last)
        if others:
            self._unplaced.update(others)
            self._ackers.setdefault(consumer_id, OffsetSet()).update(others)
            for first, last in ranges:
                self._place(first, last)

    def withhold(self, offsets: OffsetSet) -> None:
        """Keep offsets that are PENDING again until release() lets them go out."""
        super().withhold(offsets)
        for acknowledged in self._ackers.values():
            # Who acknowledges them next may be another.
            acknowledged.difference_update(offsets)
        returned = offsets.intersection(self._unsettled)
        self._count_withheld(returned, 1)
        self._count_settled(returned)

    def release(self, offsets: OffsetSet) -> None:
        """Deliver withheld offsets again, if they are still PENDING."""
        released = offsets.intersection(self.withheld)
        self.withheld.difference_update(released)
        # These offsets were not read yet: they come by themselves.
        self._unplaced.difference_update(released)
        self.redeliveries.raise_for(released)
        self._wait(self._read_of(released))
        self._count_withheld(released.intersection(self._held_back), -1)

    def restart(self) -> None:
        """Restart at the cursor's floor: the cursor was moved."""
        super().restart()
        self._known.clear()
        self._slots.clear()
        for queue in self._queues.values():
            queue.clear()
        self._unsettled.clear()
        self._settling.clear()
        self._held_back.clear()
        self._unplaced = self.cursor.pending.copy()
        self._ackers.clear()
        self._next_parts.clear()

    def skip_to(self, first_offset: int) -> None:
        """Skip offsets below first_offset, which retention removed."""
        self.read_offset = max(self.read_offset, first_offset)
        if first_offset:
            # Removed messages are gone without any durable ack.
            self.settle(self.acknowledged([(0, first_offset - 1)]))
            for start, end in self._known.batches(0, first_offset - 1):
                if end < first_offset:
                    self._known.forget(start)

    def _give_back(self, offsets: OffsetSet) -> None:
        self._wait(offsets)
        self._count_settled(offsets)

    # Delivery

    def next_offset(self, end_offset: int) -> int | None:
        """Return where to read next; None if nobody wants anything or nothing is there."""
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
        # The message's beginning was acknowledged long ago: the message cannot be put together any
        # more.
        return EMPTY_KEY_SLOT if slot is None else slot

    def _read(self, first: int, last: int) -> None:
        """Let PENDING messages of a batch with known slots wait from now on."""
        self.read_offset = last + 1
        unavailable = self.cursor.unavailable_mask(first, last) | self.withheld.mask(first, last)
        if unavailable:
            fresh = ~unavailable & ((1 << (last - first + 1)) - 1)
            self._wait(OffsetSet(ranges_of_mask(fresh, first)))
            self._forget_settled([(first, last)])
        else:
            self._wait(OffsetSet([(first, last)]))

    def _wanted(self, consumer: Consumer, first: int, last: int) -> int:
        """Return what goes to a consumer at once: in order, and with a single redelivery count."""
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
        self.replay.difference_update(given)
        self._queues[consumer_id].difference_update(given)
        self._unsettled.update(given)
        consumer.held.update(given)
        for number, run_first, run_last in self._runs(given):
            slot = self._slots[number]
            slot.waiting.discard(run_first, run_last)
            if not slot.unsettled:
                slot.holder = consumer_id
            slot.unsettled += run_last - run_first + 1
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

    # Slots

    def _wait(self, offsets: OffsetSet) -> None:
        """Queue offsets, whose slots are known, for delivery."""
        self.replay.update(offsets)
        stuck: dict[int, Slot] = {}
        for number, first, last in self._runs(offsets):
            slot = self._slot(number)
            slot.waiting.add(first, last)
            if slot.flows and slot.queue is not None:
                slot.queue.add(first, last)
            else:
                stuck[number] = slot
        self._route(stuck)

    def _stop_waiting(self, offsets: OffsetSet) -> None:
        self.replay.difference_update(offsets)
        touched: dict[int, Slot] = {}
        for number, first, last in self._runs(offsets):
            slot = touched[number] = self._slots[number]
            slot.waiting.discard(first, last)
            if slot.queue is not None:
                slot.queue.discard(first, last)
        self._route(touched)

    def _count_settled(self, offsets: OffsetSet) -> None:
        self._unsettled.difference_update(offsets)
        touched: dict[int, Slot] = {}
        for number, first, last in self._runs(offsets):
            slot = touched[number] = self._slots[number]
            slot.unsettled -= last - first + 1
        self._route(touched)

    def _count_withheld(self, offsets: OffsetSet, sign: int) -> None:
        if sign > 0:
            self._held_back.update(offsets)
        else:
            self._held_back.difference_update(offsets)
        touched: dict[int, Slot] = {}
        for number, first, last in self._runs(offsets):
            slot = touched[number] = self._slot(number)
            slot.withheld += sign * (last - first + 1)
        self._route(touched)

    def _place(self, first: int, last: int) -> None:
        """Count the unplaced offsets of a range whose slots are known by now."""
        for start, end in self._known.batches(first, last):
            found = self._unplaced.within([(start, end)])
            self._unplaced.difference_update(found)
            self._count_withheld(found.intersection(self.withheld), 1)
            pending = found.intersection(self.cursor.pending)
            pending.update(found.intersection(self._settling))
            for consumer_id, acknowledged in self._ackers.items():
                own = pending.intersection(acknowledged)
                pending.difference_update(own)
                acknowledged.difference_update(own)
                self._hold(own, consumer_id)
            self._hold(pending, NOBODY)
        if not self._unplaced:
            self._ackers.clear()

    def _hold(self, offsets: OffsetSet, consumer_id: int) -> None:
        """Count offsets in PENDING_ACK for the consumer that acknowledged them."""
        self._unsettled.update(offsets)
        touched: dict[int, Slot] = {}
        for number, first, last in self._runs(offsets):
            slot = touched[number] = self._slot(number)
            is_one = not slot.unsettled or slot.holder == consumer_id
            slot.holder = consumer_id if is_one else NOBODY
            slot.unsettled += last - first + 1
        self._route(touched)

    def _slot(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number)
        return slot

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
        if self._unsettled.intersects(first, last) or self._unplaced.intersects(first, last):
            return False
        pending = self.cursor.pending.mask(first, last)
        deleted = self.cursor.unavailable_mask(first, last) & ~pending
        return deleted == (1 << (last - first + 1)) - 1
