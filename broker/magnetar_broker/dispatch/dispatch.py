"""Dispatcher: decides which consumer gets which message, and what is redelivered. Pure.

There is a dispatcher per subscription and partition. It reads nothing and sends nothing: it is told
what lies in the log, and says what to deliver to which consumer.

Every offset at or above the cursor's floor that is PENDING is in exactly one of these: not read yet
(at or above `read_offset`), held by a consumer, in `replay`, or for a moment in `withheld`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.log.offset_set import OffsetSet, Range, ranges_of_mask
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_core.batch import Part, part_of
from magnetar_core.errors import ConsumerBusy, SubscriptionExists

REDELIVERY_COUNT_MAX = 255
# Another part of the same message follows a batch of these.
CONTINUED = (Part.FIRST, Part.MIDDLE)


class SubscriptionType(IntEnum):
    """Types of subscriptions, with the numbers of the wire."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


@dataclass(slots=True)
class Consumer:
    """An attached consumer."""

    consumer_id: int
    name: str
    attach_epoch: int
    permits: int = 0
    # Bytes of batches that it may get; None: only its message permits count.
    permit_bytes: int | None = None
    # Whether its conversation has no room, so that it gets nothing for now.
    blocked: bool = False
    # Offsets that were delivered to it and are still PENDING.
    held: OffsetSet = field(default_factory=OffsetSet)

    @property
    def is_ready(self) -> bool:
        """Whether the consumer can get messages."""
        has_permits = self.permits > 0 and (self.permit_bytes is None or self.permit_bytes > 0)
        return has_permits and not self.blocked

    def give_permits(self, messages: int, byte_count: int) -> None:
        """Add permits.

        Args:
            byte_count: 0 from a client that never limits bytes.
        """
        self.permits += messages
        if byte_count:
            self.permit_bytes = (self.permit_bytes or 0) + byte_count

    def use_permits(self, messages: int, byte_count: int) -> None:
        """Use permits for a batch. A batch is delivered whole, so both may go below zero."""
        self.permits -= messages
        if self.permit_bytes is not None:
            self.permit_bytes -= byte_count


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stored batch for a consumer, without the excluded offsets."""

    consumer: Consumer
    excluded: tuple[Range, ...]
    redelivery_count: int


class RedeliveryCounts:
    """Counts of how often an application has had messages before, as far as the broker knows.

    A nack and an abort say that the application had them. A consumer that leaves in order, or that
    attaches again, has given back by nacks what counts: the rest may never have left its queue. A
    consumer that vanished may have died of a message. So the messages that it held count once they
    go to another consumer.
    """

    def __init__(self) -> None:
        # Level k holds the offsets whose count is above k.
        self._levels: list[OffsetSet] = []
        # Offsets that went back without being counted.
        self._uncounted = OffsetSet()
        # The same, by consumers that vanished and are not back: these may still be counted.
        self._vanished: dict[int, OffsetSet] = {}

    def raise_after(self, offsets: OffsetSet, redelivery_count: int) -> None:
        """Raise the count of offsets that the application had with this count.

        A higher count says that they have been delivered again since, which it has not seen.
        """
        if redelivery_count < len(self._levels):
            offsets = offsets.copy()
            offsets.difference_update(self._levels[redelivery_count])
        self.raise_for(offsets)

    def leave(self, offsets: OffsetSet, vanished_id: int | None) -> None:
        """Note that a consumer has left, and its messages go back.

        Args:
            vanished_id: the consumer, if it did not leave in order.
        """
        if vanished_id is None:
            self._uncounted.update(offsets)
        elif offsets:
            self._vanished[vanished_id] = offsets.copy()

    def come_back(self, consumer_id: int) -> None:
        """Note that a consumer attaches again: it knows what its application had."""
        returned = self._vanished.pop(consumer_id, None)
        if returned is not None:
            self._uncounted.update(returned)

    def go_out(self, first: int, wanted: int) -> None:
        """Count the messages that vanished consumers held, since they go to another one.

        Args:
            first, wanted: as of alike().
        """
        if not self._vanished:
            return
        going = OffsetSet(ranges_of_mask(wanted, first))
        for consumer_id, offsets in list(self._vanished.items()):
            counted = offsets.intersection(going)
            if counted:
                offsets.difference_update(counted)
                self.raise_for(counted)
            if not offsets:
                del self._vanished[consumer_id]

    def raise_for(self, offsets: OffsetSet) -> None:
        """Raise the count of each offset."""
        carry = offsets.copy()
        for level in self._levels:
            already = level.intersection(carry)
            level.update(carry)
            carry = already
            if not carry:
                return
        if len(self._levels) < REDELIVERY_COUNT_MAX:
            self._levels.append(carry)

    def forget(self, first: int, last: int) -> None:
        """Forget the counts of a range."""
        for level in self._levels:
            level.discard(first, last)
        if self._uncounted:
            self._uncounted.discard(first, last)
        for offsets in self._vanished.values():
            offsets.discard(first, last)
        while self._levels and not self._levels[-1]:
            self._levels.pop()

    def returned(self, offsets: OffsetSet) -> OffsetSet:
        """Return those of the offsets that were delivered before, counted or not."""
        returned = OffsetSet()
        for known in (*self._levels[:1], self._uncounted, *self._vanished.values()):
            returned.update(known.intersection(offsets))
        return returned

    def alike(self, first: int, wanted: int) -> tuple[int, int]:
        """Return the count of the lowest of some offsets, and those of them that share it.

        Args:
            wanted: bits, not all zero; bit 0 is the offset `first`.
        """
        last = first + wanted.bit_length() - 1
        lowest = wanted & -wanted
        count = 0
        for level in self._levels:
            more_often = level.mask(first, last)
            if not more_often & lowest:
                return count, wanted & ~more_often
            wanted &= more_often
            count += 1
        return count, wanted


class Dispatcher:
    """Dispatch state of a subscription on a partition.

    It serves every type but KEY_SHARED, which has a dispatcher of its own in `key_shared`.
    """

    def __init__(self, cursor: Acknowledgements, partition_number: int) -> None:
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self.read_offset = cursor.floor
        self.replay = OffsetSet()
        # Offsets that are PENDING again in memory, while the record of that is not durable yet.
        self.withheld = OffsetSet()
        self.redeliveries = RedeliveryCounts()
        self._partition_number = partition_number
        self._turn = 0
        # The consumer that got the part before this offset, and so gets the next part of the
        # message.
        self._next_part: tuple[int, Consumer] | None = None

    def inherit(self, previous: Dispatcher) -> None:
        """Take the place of another dispatcher, which no longer has consumers."""
        self.withheld.update(previous.withheld)
        self.redeliveries = previous.redeliveries

    def check(self) -> None:
        """Check the invariants."""
        seen = self.replay.copy()
        assert not seen.intersection(self.withheld)
        seen.update(self.withheld)
        for consumer in self.consumers:
            assert not seen.intersection(consumer.held)
            seen.update(consumer.held)
        assert not seen.intersection(self.cursor.pending)
        assert not seen.intersection(self.cursor.deleted)

    def check_attach(
        self, subscription_type: SubscriptionType, *, replaced: Consumer | None = None
    ) -> None:
        """Check that a consumer may attach, perhaps in place of another consumer.

        Raises:
            ConsumerBusy: an exclusive subscription has a consumer.
            SubscriptionExists: consumers of another type are attached.
        """
        others = [one for one in self.consumers if one is not replaced]
        if others and subscription_type is not self.type:
            raise SubscriptionExists(
                f"consumers of type {self.type.name} are attached; close them to use"
                f" {subscription_type.name}"
            )
        if others and subscription_type is SubscriptionType.EXCLUSIVE:
            raise ConsumerBusy()

    def attach(self, consumer: Consumer, subscription_type: SubscriptionType) -> None:
        """Attach a consumer.

        Raises:
            ConsumerBusy: as check_attach.
            SubscriptionExists: as check_attach.
        """
        self.check_attach(subscription_type)
        self.type = subscription_type
        self.consumers.append(consumer)
        self.redeliveries.come_back(consumer.consumer_id)
        self._choose_active()

    def detach(self, consumer: Consumer, *, vanished: bool = False) -> None:
        """Detach a consumer; the messages that it holds go back.

        Args:
            vanished: whether it did not leave in order.
        """
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._return(consumer, vanished=vanished)
        self._choose_active()

    def acknowledged(self, ranges: Iterable[Range]) -> OffsetSet | None:
        """Forget offsets that are DELETED: no consumer holds them, and they have no counts.

        Returns:
            The offsets to pass to settle() once the ack is durable; None or empty: none.
        """
        for first, last in ranges:
            self._take_out(first, last)
            self.redeliveries.forget(first, last)
        return None

    def settle(self, offsets: OffsetSet) -> None:
        """Note that the ack of these offsets is durable."""

    def pend(self, ranges: Iterable[Range], consumer_id: int = 0) -> None:
        """Keep offsets in PENDING_ACK from all consumers until their transaction ends.

        Args:
            consumer_id: the consumer that acknowledged them.
        """
        for first, last in ranges:
            self._take_out(first, last)

    def withhold(self, offsets: OffsetSet) -> None:
        """Keep offsets that are PENDING again until release() lets them go out."""
        self.withheld.update(offsets)

    def release(self, offsets: OffsetSet) -> None:
        """Deliver withheld offsets again, if they are still PENDING."""
        released = offsets.intersection(self.withheld)
        self.withheld.difference_update(released)
        self.redeliveries.raise_for(released)
        self._give_back(released)

    def nack(self, consumer: Consumer, ranges: Iterable[Range], redelivery_count: int) -> None:
        """Deliver these offsets again, if the consumer holds them.

        Those that wait here already came back without it, as after a broken link: they only count.

        Args:
            redelivery_count: the count with which its application had them.
        """
        ranges = list(ranges)
        returned = consumer.held.within(ranges)
        consumer.held.difference_update(returned)
        had = self.replay.within(ranges)
        had.update(returned)
        self.redeliveries.raise_after(had, redelivery_count)
        self._give_back(returned)

    def restart(self) -> None:
        """Restart at the cursor's floor: the cursor was moved."""
        self.read_offset = self.cursor.floor
        self._next_part = None
        self.replay.clear()
        self.withheld.clear()
        self.redeliveries = RedeliveryCounts()
        for consumer in self.consumers:
            consumer.held.clear()

    def skip_to(self, first_offset: int) -> None:
        """Skip offsets below first_offset, which retention removed."""
        self.read_offset = max(self.read_offset, first_offset)
        if first_offset:
            self.acknowledged([(0, first_offset - 1)])

    def pass_over(self, first: int, last: int) -> None:
        """Skip offsets that are acknowledged without being read."""
        if first <= self.read_offset <= last:
            self.read_offset = last + 1

    def next_offset(self, end_offset: int) -> int | None:
        """Return where to read next; None if no consumer has permits or the log ends there."""
        if self._next_part is not None:
            offset, consumer = self._next_part
            is_there = offset < end_offset and self._is_deliverable(offset)
            if is_there and consumer in self._receivers():
                return offset if consumer.is_ready else None
            self._next_part = None
        if not any(consumer.is_ready for consumer in self._receivers()):
            return None
        if self.replay:
            offset = self.replay.first()
        elif self.read_offset < end_offset:
            offset = self.read_offset
        else:
            return None
        withheld_end = self._withheld_end
        # Withheld offsets come in a moment.
        return None if withheld_end is not None and withheld_end < offset else offset

    def hand_out(self, stored: StoredBatch) -> Iterable[Assignment]:
        """Give a stored batch to consumers.

        Call it only if next_offset() named one of its offsets.
        """
        assignment = self.assign(
            stored.first_offset,
            stored.count,
            stored.visible_count,
            byte_count=len(stored.batch),
            is_continued=part_of(stored.batch) in CONTINUED,
        )
        return () if assignment is None else (assignment,)

    def assign(
        self,
        first: int,
        count: int,
        visible_count: int,
        *,
        byte_count: int = 0,
        is_continued: bool = False,
    ) -> Assignment | None:
        """Give a stored batch, `count` offsets from `first`, to a consumer that is ready.

        Args:
            is_continued: the next batch is another part of the same message.

        Only the first `visible_count` offsets of the batch belong to the log: a selective or
        surplus-free commit may end within a batch. All assigned offsets have the same redelivery
        count; offsets with another count go next. Returns None when no offset is to go out; call it
        only if next_offset() named an offset in the batch.
        """
        last = first + visible_count - 1
        wanted = self.replay.mask(first, last)
        if last >= self.read_offset:
            # Not read yet: all PENDING offsets from read_offset on.
            skip = max(0, self.read_offset - first)
            fresh = ((1 << visible_count) - 1) >> skip << skip
            unavailable = self.cursor.unavailable_mask(first, last)
            wanted |= fresh & ~unavailable & ~self.withheld.mask(first, last)
            self.read_offset = last + 1
        if not wanted:
            return None
        self.redeliveries.go_out(first, wanted)
        redelivery_count, alike = self.redeliveries.alike(first, wanted)
        others = wanted & ~alike
        if others and self._is_in_order:
            # Stop before the first offset with another count.
            alike &= (others & -others) - 1
        is_next_part = self._next_part is not None and self._next_part[0] == first
        withheld_end = self._withheld_end
        if withheld_end is not None and not is_next_part:
            alike &= (1 << max(0, withheld_end - first)) - 1
        for part_first, part_last in ranges_of_mask(wanted & ~alike, first):
            self.replay.add(part_first, part_last)
        wanted = alike
        if not wanted:
            return None
        continued, self._next_part = self._next_part, None
        if continued is not None and is_next_part:
            consumer = continued[1]
        else:
            consumer = self._next_receiver()
        if is_continued:
            self._next_part = (last + 1, consumer)
        for part_first, part_last in ranges_of_mask(wanted, first):
            self.replay.discard(part_first, part_last)
            consumer.held.add(part_first, part_last)
        consumer.use_permits(wanted.bit_count(), byte_count)
        excluded = ~wanted & ((1 << count) - 1)
        return Assignment(consumer, tuple(ranges_of_mask(excluded, first)), redelivery_count)

    @property
    def _is_in_order(self) -> bool:
        return self.type is not SubscriptionType.SHARED

    @property
    def _withheld_end(self) -> int | None:
        """Return the offset before which messages may go out in order; None: no limit."""
        return self.withheld.first() if self.withheld and self._is_in_order else None

    @property
    def held_count(self) -> int:
        """Number of messages that the consumers hold."""
        return sum(len(consumer.held) for consumer in self.consumers)

    def _is_deliverable(self, offset: int) -> bool:
        """Return whether an offset goes out next, if no other offset comes before it."""
        if self.replay.mask(offset, offset):
            return True
        unavailable = self.cursor.unavailable_mask(offset, offset)
        return offset == self.read_offset and not unavailable

    def _receivers(self) -> list[Consumer]:
        if self.type is SubscriptionType.SHARED:
            return self.consumers
        return [self.active] if self.active is not None else []

    def _next_receiver(self) -> Consumer:
        receivers = self._receivers()
        for step in range(len(receivers)):
            consumer = receivers[(self._turn + step) % len(receivers)]
            if consumer.is_ready:
                self._turn = (self._turn + step + 1) % len(receivers)
                return consumer
        raise AssertionError("assign() without a consumer that is ready")

    def _choose_active(self) -> None:
        self._turn = 0
        if not self.consumers or self.type is SubscriptionType.SHARED:
            self.active = None
            return
        in_order = sorted(self.consumers, key=lambda one: (one.name, one.consumer_id))
        active = in_order[self._partition_number % len(in_order)]
        if self.active is not None and self.active is not active:
            # The new active consumer starts after the last offset that the old one acknowledged.
            self._return(self.active, vanished=False)
        self.active = active

    def _take_out(self, first: int, last: int) -> None:
        self.replay.discard(first, last)
        self.withheld.discard(first, last)
        for consumer in self.consumers:
            consumer.held.discard(first, last)

    def _return(self, consumer: Consumer, *, vanished: bool) -> None:
        """Take from a consumer what it holds."""
        held = consumer.held.copy()
        consumer.held.clear()
        self.redeliveries.leave(held, consumer.consumer_id if vanished else None)
        self._give_back(held)

    def _give_back(self, offsets: OffsetSet) -> None:
        """Deliver PENDING offsets again; those that were not read yet come by themselves."""
        for first, last in offsets.ranges():
            if first < self.read_offset:
                self.replay.add(first, min(last, self.read_offset - 1))
