"""Which of a partition's messages this client holds, so that no copy of one counts twice. Pure.

After a reconnect the broker delivers again whatever it does not know to be acknowledged, while the
application may still hold the first copy. Every offset is in at most one of: queued (arrived, not
handed out), held (handed out), acknowledged in a transaction that is undecided.
Source: docs/design/0001-protocol.md, Redelivery and the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar.messaging.interval_set import IntervalSet, Range


class UnackedTracker:
    """The offsets of one subscription's partition, as this client holds them."""

    def __init__(self) -> None:
        self.queued = IntervalSet()
        self.held = IntervalSet()
        # Handed out, and neither acknowledged for good nor given back. More than held: what a
        # transaction acknowledged that may still abort, or did.
        self.given = IntervalSet()
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
        """Messages came in; returns those that are new. Copies are noted as dropped."""
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

    def hand_out(self, first: int, last: int) -> None:
        """The application gets them."""
        self.queued.remove(first, last)
        self.held.add(first, last)
        self.given.add(first, last)

    def claim(self, ranges: Iterable[Range]) -> list[Range]:
        """The application acknowledges an earlier copy of what is queued: it is not handed out.

        So a transaction may be tried again with the messages that the last attempt was given.
        Returns: what was queued; it is held now.
        """
        claimed: list[Range] = []
        for first, last in ranges:
            claimed += self.queued.within(first, last)
        self.queued.remove_all(claimed)
        self.held.add_all(claimed)
        return claimed

    def held_up_to(self, offset: int) -> list[Range]:
        """What the application holds up to an offset, without what is being acknowledged."""
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
        free = IntervalSet(self.given.within(0, offset))
        if transaction is None:
            free.remove_all(self.acking)
        else:
            free.remove_all(self._acked.get(transaction, ()))
        return list(free)

    def acked_in(self, transaction: int) -> IntervalSet:
        """What the application acknowledged in a transaction that is undecided."""
        return IntervalSet(self._acked.get(transaction, ()))

    @property
    def is_settled(self) -> bool:
        """Whether the application has acknowledged for good, or given back, all it was given."""
        if len(self.given) > len(self.nacking):
            return False
        free = IntervalSet(self.given)
        free.remove_all(self.nacking)
        return not free

    def ack_begins(self, ranges: Sequence[Range]) -> None:
        """A plain ack is on its way: until it is confirmed, a copy may still come."""
        self.acking.add_all(ranges)
        self.nacking.remove_all(ranges)

    def ack_confirmed(self, ranges: Sequence[Range]) -> None:
        for known in (self.acking, self.held, self.dropped, self.given):
            known.remove_all(ranges)

    def ack_failed(self, ranges: Sequence[Range]) -> None:
        self.acking.remove_all(ranges)

    def ack_in_transaction(self, transaction: int, ranges: Sequence[Range]) -> None:
        """The application acknowledged them in a transaction."""
        self.held.remove_all(ranges)
        self.nacking.remove_all(ranges)
        self._acked.setdefault(transaction, IntervalSet()).add_all(ranges)

    def ack_in_transaction_confirmed(self, transaction: int, ranges: Sequence[Range]) -> None:
        if transaction in self._acked:
            self._confirmed.setdefault(transaction, IntervalSet()).add_all(ranges)

    def take_doubted(self) -> list[int]:
        """Transactions that may have been ended elsewhere, since this was asked last.

        What the broker has confirmed it delivers again only when the transaction is aborted, or
        the cursor has moved.
        """
        doubted, self._doubted = self._doubted, {}
        return [one for one in doubted if one in self._acked]

    def end_transaction(self, transaction: int, *, committed: bool) -> list[Range]:
        """A transaction has ended; returns what must be asked for again with a nack.

        That is, unless it committed: what it acknowledged and of which a copy was dropped, and
        what the broker never heard to be acknowledged and so does not deliver again by itself.
        """
        acked = self._acked.pop(transaction, None)
        confirmed = self._confirmed.pop(transaction, None) or IntervalSet()
        if acked is None:
            return []
        if committed:
            self.dropped.remove_all(acked)
            self.given.remove_all(acked)
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
        """Whatever comes of what it acknowledged is new."""
        self._acked.pop(transaction, None)
        self._confirmed.pop(transaction, None)

    def nack_begins(self, ranges: Iterable[Range]) -> list[Range]:
        """The application gives them back, later; returns those that it holds, and so can."""
        given_back = IntervalSet()
        for first, last in ranges:
            given_back.add_all(self.held.within(first, last))
        for known in (self.acking, self.nacking):
            for first, last in list(given_back):
                given_back.remove_all(known.within(first, last))
        self.nacking.add_all(given_back)
        return list(given_back)

    def nack_due(self, ranges: Iterable[Range]) -> list[Range]:
        """Time is up: those that the application has not acknowledged in the meantime leave.

        A copy that it was given after that is another delivery, and not given back by this.
        """
        given_back: list[Range] = []
        for first, last in ranges:
            given_back += self.nacking.within(first, last)
        for known in (self.nacking, self.held, self.dropped, self.given):
            known.remove_all(given_back)
        return given_back

    def detach(self) -> None:
        """The link broke: what was not handed out comes again."""
        self.queued.clear()

    def reset(self) -> None:
        """The cursor moved or the log was restored: earlier deliveries are void."""
        self.queued.clear()
        self.held.clear()
        self.given.clear()
        self.acking.clear()
        self.nacking.clear()
        self.dropped.clear()
