"""Watermarks of coordinators: which transactions have durably ended, and which TxnIDs are issued.

A watermark covers every TxnID of an incarnation below it, except the live ranges. Once covered, a
TxnID stays covered: a late copy of an older watermark takes nothing back.
Source: docs/protocol/rules.md, rules c and f.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from magnetar_core.history.events import WatermarkTaken
from magnetar_core.history.history import History
from magnetar_core.ids import INCARNATION_MAX, TxnID

# A range of counters: first and last, both included.
CounterRange = tuple[int, int]
# How many former incarnations of a coordinator keep their watermark; a restore begins another one.
FORMER_MAX = 16


@dataclass(frozen=True, slots=True)
class Watermark:
    """Watermark of a coordinator; live ranges ascend and do not touch.

    Attributes:
        next_counter: smaller counters are issued, or never will be.
        counter_bound: at no time was this counter or a higher counter issued.
        store_digest: digest of the token of the coordinator's store, which sends the watermark.
    """

    incarnation: int = 0
    low_watermark: int = 0
    live: tuple[CounterRange, ...] = ()
    next_counter: int = 0
    counter_bound: int = 0
    store_digest: bytes = b""

    @property
    def coverage(self) -> tuple[int, int, tuple[CounterRange, ...]]:
        """The fields that decide which TxnIDs are covered."""
        return self.incarnation, self.low_watermark, self.live

    def covers(self, txn_id: TxnID) -> bool:
        """Return whether the transaction has durably ended. Other incarnations are not covered."""
        most_bits, counter = txn_id
        if most_bits & INCARNATION_MAX != self.incarnation or counter >= self.low_watermark:
            return False
        if not self.live:
            return True
        at = bisect_right(self.live, (counter, 1 << 64)) - 1
        return at < 0 or self.live[at][1] < counter

    def advanced(
        self,
        incarnation: int,
        low_watermark: int,
        live: Iterable[CounterRange],
        *,
        next_counter: int = 0,
        counter_bound: int = 0,
        store_digest: bytes = b"",
    ) -> Watermark:
        """Return the state after a newer announcement; self if the announcement is old."""
        if incarnation < self.incarnation:
            return self
        if incarnation > self.incarnation:
            covered = clipped(live, 0, low_watermark)
            return Watermark(
                incarnation, low_watermark, covered, next_counter, counter_bound, store_digest
            )
        # After a restart a coordinator may announce a lower watermark than before; its other fields
        # count.
        known = replace(self.issuing(next_counter, counter_bound), store_digest=store_digest)
        if low_watermark < self.low_watermark:
            return known
        live = sorted(live)
        still_live = intersected(clipped(live, 0, self.low_watermark), self.live)
        new_live = clipped(live, self.low_watermark, low_watermark)
        return replace(known, low_watermark=low_watermark, live=still_live + new_live)

    def issuing(self, next_counter: int, counter_bound: int = 0) -> Watermark:
        """Return the state after more TxnIDs are issued, or may be; neither value goes back."""
        return replace(
            self,
            next_counter=max(self.next_counter, next_counter),
            counter_bound=max(self.counter_bound, counter_bound),
        )


def clipped(ranges: Iterable[CounterRange], start: int, end: int) -> tuple[CounterRange, ...]:
    """Return the parts in [start, end), ascending; ranges that overlap or touch are joined."""
    parts: list[CounterRange] = []
    for first, last in sorted(ranges):
        first, last = max(first, start), min(last, end - 1)
        if first > last:
            continue
        if parts and first <= parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], max(parts[-1][1], last))
        else:
            parts.append((first, last))
    return tuple(parts)


def intersected(
    one: tuple[CounterRange, ...], other: tuple[CounterRange, ...]
) -> tuple[CounterRange, ...]:
    """Return the intersection of two sets of ranges; each ascends and does not overlap."""
    common = []
    at = 0
    for first, last in one:
        while at < len(other) and other[at][1] < first:
            at += 1
        place = at
        while place < len(other) and other[place][0] <= last:
            common.append((max(first, other[place][0]), min(last, other[place][1])))
            place += 1
    return tuple(common)


class Watermarks:
    """Watermarks of all coordinators that this broker has heard.

    Args:
        history: notes what is newly covered; None: there is none.
    """

    def __init__(self, history: History | None = None) -> None:
        self._history = history
        self._by_tcid: dict[int, Watermark] = {}
        # The last watermarks of former incarnations: what they cover has ended for ever.
        self._former: dict[int, dict[int, Watermark]] = {}
        # The first TxnID that may be running, and the first that is not issued, of each.
        self._running: dict[int, tuple[TxnID, TxnID]] = {}

    def of(self, tcid: int) -> Watermark:
        """Return a coordinator's watermark; an empty watermark if it is unknown."""
        return self._by_tcid.get(tcid, Watermark())

    def find(self, tcid: int) -> Watermark | None:
        """Return a coordinator's watermark; None: this broker never heard the coordinator."""
        return self._by_tcid.get(tcid)

    def set(self, tcid: int, watermark: Watermark) -> None:
        """Set a coordinator's watermark, and keep the last one of its former incarnation."""
        before = self.of(tcid)
        if self._history is not None and before.coverage != watermark.coverage:
            self._history.note(WatermarkTaken(tcid, *watermark.coverage))
        self._by_tcid[tcid] = watermark
        if before.incarnation < watermark.incarnation and before.low_watermark:
            self.keep_former(tcid, before)
        most_bits = tcid << 48 | watermark.incarnation
        self._running[tcid] = (
            TxnID(most_bits, watermark.low_watermark),
            TxnID(most_bits, watermark.next_counter),
        )

    def keep_former(self, tcid: int, watermark: Watermark) -> None:
        """Keep the last watermark of a former incarnation, and drop the oldest of too many."""
        former = self._former.setdefault(tcid, {})
        former[watermark.incarnation] = watermark
        if len(former) > FORMER_MAX:
            del former[min(former)]

    def former(self, tcid: int) -> dict[int, Watermark]:
        """Return the last watermarks of a coordinator's former incarnations, by incarnation."""
        return dict(self._former.get(tcid, {}))

    def known(self) -> list[tuple[int, Watermark]]:
        """Return all watermarks, by TCID."""
        return sorted(self._by_tcid.items())

    def covers(self, txn_id: TxnID) -> bool:
        """Return whether the coordinator has announced that the transaction has ended.

        It may have been an earlier store of that coordinator (rule n).
        """
        watermark = self._of_incarnation(txn_id[0])
        return watermark is not None and watermark.covers(txn_id)

    def covered(self, txn_ids: Iterable[TxnID]) -> list[TxnID]:
        """Return those of the transactions that covers() tells of, in their order.

        A participant asks about all that have ended there, each second.
        """
        found: list[TxnID] = []
        known_bits: int | None = None
        watermark = Watermark()
        low_watermark, live = 0, watermark.live
        for txn_id in txn_ids:
            most_bits, counter = txn_id
            if most_bits != known_bits:
                known_bits, watermark = most_bits, self._of_incarnation(most_bits) or Watermark()
                is_its_own = watermark.incarnation == most_bits & INCARNATION_MAX
                low_watermark = watermark.low_watermark if is_its_own else 0
                live = watermark.live
            if counter < low_watermark and (not live or watermark.covers(txn_id)):
                found.append(txn_id)
        return found

    def _of_incarnation(self, most_bits: int) -> Watermark | None:
        """Return the last watermark of the incarnation that issued TxnIDs with these bits."""
        tcid, incarnation = most_bits >> 48, most_bits & INCARNATION_MAX
        watermark = self._by_tcid.get(tcid)
        if watermark is not None and incarnation < watermark.incarnation:
            return self._former.get(tcid, {}).get(incarnation)
        return watermark

    def is_running(self, txn_id: TxnID) -> bool:
        """Return whether a TxnID is issued, of the newest incarnation, and above the low watermark.

        Then it is neither covered nor superseded. Nearly every TxnID in which a client writes is
        like that, and one look tells. The other methods tell of the rest.
        """
        running = self._running.get(txn_id[0] >> 48)
        return running is not None and running[0] <= txn_id < running[1]

    def is_superseded(self, txn_id: TxnID) -> bool:
        """Return whether the TxnID belongs to an incarnation before its coordinator's newest."""
        watermark = self._by_tcid.get(txn_id.tcid)
        return watermark is not None and txn_id.incarnation < watermark.incarnation
