"""Messages that are received one by one, by a step of an iterator each. Pure.

The queue of a partition lends consecutive messages of a batch. Whoever receives takes the next one
from the iterator, and the queue is not called. Before anything that depends on it, the queue asks
how far the iterator has come, or takes back what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import cast

from magnetar.message import Message, ReceivedBatch


class LentMessages:
    """Consecutive messages of a batch.

    Other threads than the event loop's may receive as well. A step of the iterator is indivisible,
    and so is `list` of it, which takes back the rest: each message goes either way, never both.

    Attributes:
        batch: the batch.
        count: how many messages are lent in all.
        places: the places of those that are not received yet.
    """

    __slots__ = ("_noted", "_start", "_stop", "batch", "count", "places")

    def __init__(self, batch: ReceivedBatch, start: int, stop: int) -> None:
        """Lend the messages from place `start` to before `stop`."""
        self.batch = batch
        self.count = stop - start
        self.places: Iterator[int] = iter(range(start, stop))
        self._start = start
        self._stop = stop
        # The places before this one are known to be received.
        self._noted = start

    def next(self) -> Message | None:
        """Take the next message; None when no more are lent."""
        for place in self.places:
            return Message(self.batch, place)
        return None

    @property
    def received_count(self) -> int:
        """How many of them were received, as far as that is noted."""
        return self._noted - self._start

    def received(self) -> range:
        """Return the places that were received since the last call."""
        return self._received_before(self._stop - length_hint(self.places))

    def take_back(self) -> range:
        """End the loan, and return the places that were received since the last call."""
        self._stop -= len(list(self.places))
        return self._received_before(self._stop)

    def _received_before(self, place: int) -> range:
        received = range(self._noted, place)
        self._noted = place
        return received


# It has no places, so that nobody looks at its batch.
NOTHING_LENT = LentMessages(cast(ReceivedBatch, None), 0, 0)
