"""Which transactions a coordinator has durably ended.

A watermark covers every TxnID of one incarnation below it, except the live ranges. Once covered, a
TxnID stays covered: a late copy of an older watermark takes nothing back.
Source: docs/testing.md, rule c.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_core.ids import TxnID

# Counters first to last, both included.
CounterRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Watermark:
    """One coordinator's word; live ranges ascend and do not touch."""

    incarnation: int = 0
    low_watermark: int = 0
    live: tuple[CounterRange, ...] = ()

    def covers(self, txn_id: TxnID) -> bool:
        """Whether the transaction has durably ended. Older incarnations are not covered."""
        if txn_id.incarnation != self.incarnation or txn_id.counter >= self.low_watermark:
            return False
        at = bisect_right(self.live, (txn_id.counter, 1 << 64)) - 1
        return at < 0 or self.live[at][1] < txn_id.counter

    def advanced(
        self, incarnation: int, low_watermark: int, live: Iterable[CounterRange]
    ) -> Watermark:
        """What is covered once a newer word has come; self when it is an old one."""
        if (incarnation, low_watermark) < (self.incarnation, self.low_watermark):
            return self
        if incarnation > self.incarnation:
            return Watermark(incarnation, low_watermark, _clipped(live, 0, low_watermark))
        live = sorted(live)
        still_live = _intersected(_clipped(live, 0, self.low_watermark), self.live)
        new_live = _clipped(live, self.low_watermark, low_watermark)
        return Watermark(incarnation, low_watermark, still_live + new_live)


def _clipped(ranges: Iterable[CounterRange], start: int, end: int) -> tuple[CounterRange, ...]:
    """The parts in [start, end), ascending; ranges that overlap or touch become one."""
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


def _intersected(
    one: tuple[CounterRange, ...], other: tuple[CounterRange, ...]
) -> tuple[CounterRange, ...]:
    common = []
    for first, last in one:
        for other_first, other_last in other:
            if other_first <= last and first <= other_last:
                common.append((max(first, other_first), min(last, other_last)))
    return tuple(common)


class Watermarks:
    """The watermarks of all coordinators that this broker has heard of."""

    def __init__(self) -> None:
        self._by_tcid: dict[int, Watermark] = {}

    def of(self, tcid: int) -> Watermark:
        return self._by_tcid.get(tcid, Watermark())

    def set(self, tcid: int, watermark: Watermark) -> None:
        self._by_tcid[tcid] = watermark

    def known(self) -> list[tuple[int, Watermark]]:
        return sorted(self._by_tcid.items())

    def covers(self, txn_id: TxnID) -> bool:
        """Whether the coordinator has said that the transaction has ended."""
        watermark = self._by_tcid.get(txn_id.tcid)
        return watermark is not None and watermark.covers(txn_id)

    def is_superseded(self, txn_id: TxnID) -> bool:
        """Whether the TxnID is of an incarnation before the newest one of its coordinator."""
        watermark = self._by_tcid.get(txn_id.tcid)
        return watermark is not None and txn_id.incarnation < watermark.incarnation
