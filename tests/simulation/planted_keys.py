"""Planted bugs of Key_Shared subscriptions. See `planted`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.simulation.planting import replaced

from magnetar_broker.dispatch.key_shared import KeySharedDispatcher, Place, Slot
from magnetar_broker.log.offset_set import OffsetSet, Range


def keys_move_at_once() -> AbstractContextManager[None]:
    """Whoever joins gets its keys, whatever others still have of them."""
    original = KeySharedDispatcher._route

    def route(self: KeySharedDispatcher, slots: dict[int, Slot]) -> None:
        for slot in slots.values():
            target = self._targets.of(slot.number)
            slot.holder = slot.holder if target is None else target
        original(self, slots)

    return replaced(KeySharedDispatcher, "_route", route)


@contextmanager
def pending_acks_hold_no_key() -> Iterator[None]:
    """A key moves although its last message waits for the end of a transaction."""
    original_pend, original_withhold = KeySharedDispatcher.pend, KeySharedDispatcher.withhold

    def pend(self: KeySharedDispatcher, ranges: Iterable[Range], consumer_id: int = 0) -> None:
        ranges = list(ranges)
        original_pend(self, ranges, consumer_id)
        self._move(self._ack_pending.within(ranges), Place.ACK_PENDING, Place.OUTSIDE)

    def withhold(self: KeySharedDispatcher, offsets: OffsetSet) -> None:
        counted = offsets.intersection(self._ack_pending)
        original_withhold(self, counted)
        others = offsets.copy()
        others.difference_update(counted)
        self._move(others, Place.OUTSIDE, Place.WITHHELD)

    with (
        replaced(KeySharedDispatcher, "pend", pend),
        replaced(KeySharedDispatcher, "withhold", withhold),
    ):
        yield


def keys_of_pending_acks_not_learned() -> AbstractContextManager[None]:
    """After a restart nobody asks which keys wait for transactions."""
    original = KeySharedDispatcher.__init__

    def init(self: KeySharedDispatcher, *arguments: Any, **more: Any) -> None:
        original(self, *arguments, **more)
        self._unplaced.clear()

    return replaced(KeySharedDispatcher, "__init__", init)


PLANTS = (
    keys_move_at_once,
    pending_acks_hold_no_key,
    keys_of_pending_acks_not_learned,
)
