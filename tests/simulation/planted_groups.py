"""Planted bugs of groups. See `planted`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.simulation.planting import replaced

from magnetar_broker.assignment.group import Group
from magnetar_broker.assignment.group_rows import row_of
from magnetar_broker.groups import groups
from magnetar_broker.log.offset_set import OffsetSet
from magnetar_broker.subscriptions.ownership import Ownership
from magnetar_broker.subscriptions.subscription import Subscription


def zombie_acks_taken() -> AbstractContextManager[None]:
    """Nobody is asked for the generation of what it acknowledges (KIP-447)."""
    return replaced(Ownership, "check", lambda self, member: None)


def earlier_generations_ignored() -> AbstractContextManager[None]:
    """A new owner does not wait for what earlier ones have left open."""
    return replaced(Ownership, "awaited", lambda self, transactions: [])


def first_end_is_enough() -> AbstractContextManager[None]:
    """A new owner waits for one of several transactions."""

    def release(self: Subscription, offsets: OffsetSet) -> None:
        self.dispatcher.release(offsets)
        self.delivery.wait(False)
        self.delivery.wake()

    return replaced(Subscription, "_release", release)


def generation_not_stored() -> AbstractContextManager[None]:
    """After a restart generations begin anew."""

    def without_generation(group: Group) -> Any:
        row = row_of(group)
        row.generation = 0
        return row

    return replaced(groups, "row_of", without_generation)


def aborted_come_last() -> AbstractContextManager[None]:
    """What an aborted transaction had acknowledged comes after what lies behind it."""
    original = Subscription.deliver_after
    return replaced(Subscription, "deliver_after", lambda self, txn_ids: original(self, ()))


PLANTS = (
    zombie_acks_taken,
    earlier_generations_ignored,
    first_end_is_enough,
    generation_not_stored,
    aborted_come_last,
)
