"""Tracks which messages of a partition the client has, so that no copy counts twice. Pure.

After a reconnect, the broker delivers again all messages that it does not know to be acknowledged,
while the application may still have the first copy. Every offset is in at most one of these sets:
queued (arrived and not received by the application), held (received), and acknowledged in a
transaction without an outcome.
Source: docs/design/0001-protocol.md, Redelivery and the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from magnetar.messaging.interval_set import IntervalSet, Range


class UnackedTracker:
    """The offsets of a subscription's partition that this client has.

    What the application has received and acknowledged is noted late, many messages at once. So
    whatever depends on it calls `catch_up` first.
    """

    def __init__(self, catch_up: Callable[[], None] = lambda: None) -> None:
        """Nothing has arrived yet.

        Args:
            catch_up: calls hand_out() and ack_begins() for what is not noted yet.
        """
        self._catch_up = catch_up
        self.queued = IntervalSet()
        self.held = IntervalSet()
        # Handed out, and neither acknowledged for good nor given back. More than held: what a
        # transaction acknowledged that may still abort, or did.
        self.given = IntervalSet()
        # Of given: what the application had before, by the redelivery counts with which it has it.
        self._redelivered: dict[int, IntervalSet] = {}
        # Of held: a plain ack of them is under way.
        self.acking = IntervalSet()
        # Of held: given back, and soon asked for again.
        self.nacking = IntervalSet()
        # A copy of them was thrown away: without an ack, nothing brings another.
        self.dropped = IntervalSet()
        self._acked: dict[int, IntervalSet] = {}
        # Of the acked: the broker has confirmed, and delivers again by itself on abort.
        self._confirmed: dict[int, IntervalSet] = {}
        # Transactions of which the broker has delivered again what it had confirmed.
        self._doubted: dict[int, None] = {}

    def arrive(self, ranges: Iterable[Range]) -> list[Range]:
        """Add messages that arrived and return the new offsets. Copies are dropped."""
        self._catch_up()
        new = IntervalSet(ranges)
        for transaction, confirmed in self._confirmed.items():
            if any(confirmed.within(first, last) for first, last in new):
                self._doubted[transaction] = None
        for known in (self.held, *self._acked.values()):
            copies: list[Range] = []
            for first, last in new:
                copies += known.within(first, last)
            new.remove_all(copies)
            self.dropped.add_all(copies)
        for first, last in list(new):
            new.remove_all(self.queued.within(first, last))
        self.queued.add_all(new)
        return list(new)

    def hand_out(self, first: int, last: int, redelivery_count: int) -> None:
        """Note that the application has received these messages, with this redelivery count."""
        self.queued.remove(first, last)
        self.held.add(first, last)
        self.given.add(first, last)
        if redelivery_count or self._redelivered:
            self._forget_counts([(first, last)])
            if redelivery_count:
                self._redelivered.setdefault(redelivery_count, IntervalSet()).add(first, last)

    def unacknowledged(self) -> dict[int, list[Range]]:
        """Return the application's messages, without acks under way, as by_count() sorts them."""
        self._catch_up()
        free = IntervalSet(self.held)
        free.remove_all(self.acking)
        return self.by_count(free)

    def by_count(self, ranges: Iterable[Range]) -> dict[int, list[Range]]:
        """Sort messages that the application has by the redelivery counts with which it has them.

        A nack names the count. The broker raises it unless it is higher by now: then this client
        has dropped a later copy, which the application has not seen.
        """
        first_time = IntervalSet(ranges)
        counts: dict[int, list[Range]] = {}
        for count, redelivered in self._redelivered.items():
            found = [part for first, last in first_time for part in redelivered.within(first, last)]
            if found:
                counts[count] = found
                first_time.remove_all(found)
        if first_time:
            counts[0] = list(first_time)
        return counts

    def _forget_counts(self, ranges: Iterable[Range]) -> None:
        if not self._redelivered:
            return
        ranges = list(ranges)
        for count, redelivered in list(self._redelivered.items()):
            redelivered.remove_all(ranges)
            if not redelivered:
                del self._redelivered[count]

    def has_queued(self, ranges: Iterable[Range]) -> bool:
        """Whether a message at one of these offsets is queued."""
        self._catch_up()
        return bool(self.queued) and any(self.queued.within(first, last) for first, last in ranges)

    def was_given(self, offset: int) -> bool:
        """Whether the application was given a message, and has neither settled nor returned it."""
        self._catch_up()
        return offset in self.given

    def claim(self, ranges: Iterable[Range]) -> list[Range]:
        """Take queued messages, since the application acknowledges an earlier copy of them.

        So a transaction can be tried again with the messages of the last attempt.
        Returns:
            The offsets that were queued; they are held now.
        """
        claimed: list[Range] = []
        for first, last in ranges:
            claimed += self.queued.within(first, last)
        self.queued.remove_all(claimed)
        self.held.add_all(claimed)
        return claimed

    def held_up_to(self, offset: int) -> list[Range]:
        """Return the application's messages up to an offset, without acks under way."""
        self._catch_up()
        free = IntervalSet(self.held.within(0, offset))
        free.remove_all(self.acking)
        return list(free)

    def given_up_to(self, offset: int, transaction: int | None) -> list[Range]:
        """The messages up to an offset that the application was given and has not acknowledged.

        Those that another transaction has acknowledged are among them, and will conflict.

        Args:
            offset: the last offset that counts.
            transaction: the number of the transaction that acknowledges; None: no transaction.
        """
        self._catch_up()
        free = IntervalSet(self.given.within(0, offset))
        if transaction is None:
            free.remove_all(self.acking)
        else:
            free.remove_all(self._acked.get(transaction, ()))
        return list(free)

    def acked_in(self, transaction: int) -> IntervalSet:
        """Return the messages that are acknowledged in an undecided transaction."""
        return IntervalSet(self._acked.get(transaction, ()))

    @property
    def is_settled(self) -> bool:
        """Whether all received messages are acknowledged for good, or given back."""
        self._catch_up()
        if len(self.given) > len(self.nacking):
            return False
        free = IntervalSet(self.given)
        free.remove_all(self.nacking)
        return not free

    def ack_begins(self, ranges: Sequence[Range]) -> None:
        """Note a plain ack; until it is confirmed, a copy may still arrive."""
        self._catch_up()
        self.acking.add_all(ranges)
        self.nacking.remove_all(ranges)

    def ack_confirmed(self, ranges: Sequence[Range]) -> None:
        """Note that the broker has confirmed a plain ack."""
        self._catch_up()
        for known in (self.acking, self.held, self.dropped, self.given):
            known.remove_all(ranges)
        self._forget_counts(ranges)

    def ack_failed(self, ranges: Sequence[Range]) -> None:
        """Note that a plain ack has failed: the application has the messages again."""
        self._catch_up()
        self.acking.remove_all(ranges)

    def ack_in_transaction(self, transaction: int, ranges: Sequence[Range]) -> None:
        """Note that the application has acknowledged in a transaction."""
        self._catch_up()
        self.held.remove_all(ranges)
        if self.nacking:
            self.nacking.remove_all(ranges)
        _add_to(self._acked, transaction, ranges)

    def ack_in_transaction_confirmed(self, transaction: int, ranges: Sequence[Range]) -> None:
        """Note that the broker has confirmed such an ack."""
        if transaction in self._acked:
            _add_to(self._confirmed, transaction, ranges)

    def take_doubted(self) -> list[int]:
        """Return the transactions that may have ended elsewhere, since the last call.

        The broker delivers a message of a confirmed ack again only if the transaction was aborted,
        or the cursor has moved.
        """
        doubted, self._doubted = self._doubted, {}
        return [one for one in doubted if one in self._acked]

    def end_transaction(self, transaction: int, *, committed: bool) -> list[Range]:
        """Note the end of a transaction, and return the offsets to ask for again with a nack.

        There are none after a commit. After an abort these are the acknowledged messages of which a
        copy was dropped, and those whose ack the broker never got and which it does not deliver
        again by itself.
        """
        self._catch_up()
        acked = self._acked.pop(transaction, None)
        confirmed = self._confirmed.pop(transaction, ())
        if acked is None:
            return []
        if committed:
            if self.dropped:
                self.dropped.remove_all(acked)
            self.given.remove_all(acked)
            self._forget_counts(acked)
            return []
        wanted = IntervalSet(acked)
        wanted.remove_all(confirmed)
        for first, last in acked:
            wanted.add_all(self.dropped.within(first, last))
        self.dropped.remove_all(acked)
        # What another transaction acknowledged too is not ours to ask for.
        for other in self._acked.values():
            wanted.remove_all(other)
        return list(wanted)

    def forget_transaction(self, transaction: int) -> None:
        """Treat all messages that the transaction acknowledged as new."""
        self._catch_up()
        self._acked.pop(transaction, None)
        self._confirmed.pop(transaction, None)

    def nack_begins(self, ranges: Iterable[Range]) -> list[Range]:
        """Note a nack, and return the offsets that the application has and can give back."""
        self._catch_up()
        given_back = IntervalSet()
        for first, last in ranges:
            given_back.add_all(self.held.within(first, last))
        for known in (self.acking, self.nacking):
            for first, last in list(given_back):
                given_back.remove_all(known.within(first, last))
        self.nacking.add_all(given_back)
        return list(given_back)

    def nack_due(self, ranges: Iterable[Range]) -> dict[int, list[Range]]:
        """Return the offsets of a nack whose time has come, without those acknowledged meanwhile.

        A copy that the application received after the nack is another delivery, and is not given
        back.

        Returns:
            The offsets as by_count() sorts them.
        """
        self._catch_up()
        given_back: list[Range] = []
        for first, last in ranges:
            given_back += self.nacking.within(first, last)
        counts = self.by_count(given_back)
        for known in (self.nacking, self.held, self.dropped, self.given):
            known.remove_all(given_back)
        self._forget_counts(given_back)
        return counts

    def detach(self) -> None:
        """Drop queued messages, since the link broke and they come again."""
        self._catch_up()
        self.queued.clear()

    def reset(self) -> None:
        """Forget everything, since the cursor moved or the log was restored."""
        self._catch_up()
        self.queued.clear()
        self.held.clear()
        self.given.clear()
        self.acking.clear()
        self.nacking.clear()
        self.dropped.clear()
        self._redelivered.clear()


def _add_to(sets: dict[int, IntervalSet], key: int, ranges: Sequence[Range]) -> None:
    found = sets.get(key)
    if found is None:
        sets[key] = IntervalSet(ranges)
    else:
        found.add_all(ranges)
