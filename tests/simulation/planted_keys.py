"""Planted bugs of Key_Shared subscriptions. See `planted`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from tests.simulation.planting import replaced

from magnetar_broker.dispatch.key_shared import KeySharedDispatcher, Slot
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


def pending_acks_hold_no_key() -> AbstractContextManager[None]:
    """A key moves although its last message waits for the end of a transaction."""
    original = KeySharedDispatcher.pend

    def pend(self: KeySharedDispatcher, ranges: Iterable[Range], consumer_id: int = 0) -> None:
        ranges = list(ranges)
        original(self, ranges, consumer_id)
        self._count_settled(OffsetSet(ranges).intersection(self._unsettled))

    return replaced(KeySharedDispatcher, "pend", pend)


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
