"""Watches every hand-out of a Key_Shared subscription: one consumer per key, and its order.

It reads the keys from the batches by itself, and looks only at what consumers hold and what the
cursor says: not at the slots by which the dispatcher decides (docs/design/0004-key-shared.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from tests.simulation.planting import replaced

from magnetar_broker.dispatch.dispatch import Assignment
from magnetar_broker.dispatch.key_shared import KeySharedDispatcher
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_core.batch import decode

# A partition, by any value that lies in it: values are used once.
Place = tuple[str, int]


class KeyOrder:
    """
    Args:
        subscriptions: all of the broker, now.
        place_of: the partition in which a value lies.
        violation: ends the run; invariant and text.
    """

    def __init__(
        self,
        subscriptions: Callable[[], Iterable[Subscription]],
        place_of: Callable[[bytes], Place | None],
        violation: Callable[[str, str], NoReturn],
    ) -> None:
        self._subscriptions = subscriptions
        self._place_of = place_of
        self._violation = violation
        # By partition and key: offsets that were ever given to anybody. They survive the broker:
        # what is in PENDING_ACK does.
        self._given: dict[tuple[Place, bytes | None], dict[int, None]] = {}
        self._last: dict[tuple[Place, bytes | None], int] = {}
        self.counts: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        original = KeySharedDispatcher.hand_out

        def hand_out(dispatcher: KeySharedDispatcher, stored: StoredBatch) -> list[Assignment]:
            assignments = original(dispatcher, stored)
            for one in assignments:
                self._check(dispatcher, stored, one)
            return assignments

        with replaced(KeySharedDispatcher, "hand_out", hand_out):
            yield

    def _check(
        self, dispatcher: KeySharedDispatcher, stored: StoredBatch, assignment: Assignment
    ) -> None:
        columns = decode(stored.batch)
        keys = columns.keys() or [None] * columns.count
        place = self._place_of(columns.values()[0])
        if place is None:
            return
        excluded = {o for one in assignment.excluded for o in range(one[0], one[1] + 1)}
        consumer_id = assignment.consumer.consumer_id
        for index in range(stored.visible_count):
            offset = stored.first_offset + index
            if offset in excluded:
                continue
            given = self._given.setdefault((place, keys[index]), {})
            given[offset] = None
            for other in list(given):
                self._check_other(dispatcher, assignment, (offset, other), keys[index])
                if other < dispatcher.cursor.floor:
                    del given[other]
            last = self._last.get((place, keys[index]))
            self._last[place, keys[index]] = consumer_id
            self.counts["keyed deliveries"] += 1
            self.counts["moves of keys"] += last not in (None, consumer_id)

    def _check_other(
        self,
        dispatcher: KeySharedDispatcher,
        assignment: Assignment,
        offsets: tuple[int, int],
        key: bytes | None,
    ) -> None:
        """An offset of a key was handed out: what is with the key's others?"""
        offset, other = offsets
        cursor, consumer = dispatcher.cursor, assignment.consumer
        if other in consumer.held or cursor.is_deleted(other):
            return
        text = f"{offset} of {key!r} goes to {consumer.name}"
        if other in cursor.pending:
            self.counts["beside a pending ack"] += 1
            subscription = self._subscription_of(dispatcher)
            # What a former owner of the shard hands out leaves nobody's server.
            if subscription is not None and _acker(subscription, other) != consumer.consumer_id:
                self._violation("q", f"{text}, and {other} is pending with another consumer")
        elif any(other in one.held for one in dispatcher.consumers):
            self._violation("q", f"{text}, and another consumer holds {other}")
        elif other < offset:
            self._violation("q", f"{text} before {other}, which nobody has")

    def _subscription_of(self, dispatcher: KeySharedDispatcher) -> Subscription | None:
        """Return the dispatcher's subscription at a broker of now."""
        for subscription in self._subscriptions():
            if subscription.dispatcher is dispatcher:
                return subscription
        return None


def _acker(subscription: Subscription, offset: int) -> int | None:
    """Who acknowledged it has its key, and not who was given it last: an ack may come late."""
    for consumer_id, (first, last) in subscription._pending_acks():
        if first <= offset <= last:
            return consumer_id
    return None
