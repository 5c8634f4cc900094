"""The fast lane of a consumer: most messages are received and acknowledged here, and nowhere else.

The first message of a batch takes the long way: it looks at everything, and opens the lane for the
messages behind it. While the lane is open, nothing has happened on which the answers of those looks
depend, so that the next receipt is a step of an iterator, and the next ack a comparison and an
addition. Before anything that depends on them, a queue asks how far the lane has come, or takes
back what is left; whatever changes what acks mean ends the run of acks first.

Invariant: each message is received once, in the lane or the long way, and so it is with its ack.
Other threads than the event loop's use the lane without a lock (`magnetar.blocking`). So the
invariant rests on a step of an iterator being indivisible, and `list` of the iterator too, which
takes back the rest. That is so under a global interpreter lock only.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from operator import length_hint
from threading import Lock
from typing import cast

from magnetar.message import Message, ReceivedBatch
from magnetar.messaging.interval_set import Range


def require_gil() -> None:
    """Check that the interpreter has a global lock.

    Raises:
        ImportError: it has none.
    """
    # Python has told since 3.13; before, there was always a lock.
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    if is_enabled is not None and not is_enabled():
        raise ImportError(
            "magnetar needs Python's global interpreter lock, and this interpreter runs without it:"
            " use a build that is not free-threaded, or set PYTHON_GIL=1"
        )


require_gil()


class LentMessages:
    """Consecutive messages of a batch, which a queue lends to be received one by one.

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
        """Take the next message; None if all lent messages are taken."""
        for place in self.places:
            return Message(self.batch, place)
        return None

    @property
    def received_count(self) -> int:
        """The number of messages that are noted as received."""
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


# It has no places, so its batch is never read.
NOTHING_LENT = LentMessages(cast(ReceivedBatch, None), 0, 0)


class AckRun:
    """Acks of the messages of a batch, one after the other, gathered as a range.

    It is not open until `begin` is called.

    Attributes:
        batch: the batch; None while the run is not open.
        next_place: the place of the message whose ack makes the run longer. The event loop's thread
            may raise it by one; other threads call `extend`.
        stop_place: the place before which the run ends.
    """

    __slots__ = ("_first_place", "_lock", "batch", "next_place", "stop_place")

    def __init__(self) -> None:
        self.batch: ReceivedBatch | None = None
        self.next_place = 0
        self.stop_place = 0
        self._first_place = 0
        # A blocking client's threads make the run longer while the event loop's thread may end it.
        self._lock = Lock()

    def begin(self, batch: ReceivedBatch, next_place: int, stop_place: int) -> None:
        """Open the run behind a message that was acknowledged. It must not be open."""
        with self._lock:
            self.batch = batch
            self.next_place = self._first_place = next_place
            self.stop_place = stop_place

    def extend(self, message: Message) -> bool:
        """Acknowledge a message, if it is the next one of the run. Any thread may call this.

        Returns:
            Whether it was.
        """
        with self._lock:
            if (
                message.batch is not self.batch
                or message.place != self.next_place
                or self.next_place >= self.stop_place
            ):
                return False
            self.next_place += 1
            return True

    def end(self) -> Range | None:
        """End the run, and return the offsets that were acknowledged in it."""
        if self.batch is None:
            # Only this thread opens it.
            return None
        with self._lock:
            batch, self.batch = self.batch, None
            first, end = self._first_place, self.next_place
        if batch is None or first == end:
            return None
        return batch.first_offset + first, batch.first_offset + end - 1


# Of a consumer that has acknowledged nothing, or has to take the long way next. It is never opened.
NO_RUN = AckRun()


class FastLane:
    """The fast lane of a consumer.

    Attributes:
        lent: the messages that are received in it.
        run: the acks that it gathers.
    """

    __slots__ = ("_open_blocks", "lent", "run")

    def __init__(self, open_blocks: Collection[object]) -> None:
        """A lane that is closed.

        Args:
            open_blocks: the open blocks of transactions: in these, each ack takes the long way.
        """
        self._open_blocks = open_blocks
        self.lent = NOTHING_LENT
        self.run = NO_RUN

    def receive(self) -> Message | None:
        """Return the next message; None: take the long way. Any thread may call this."""
        return self.lent.next()

    def acknowledge(self, message: object) -> bool:
        """Acknowledge a message; False: take the long way. Any thread may call this."""
        if self._open_blocks or not isinstance(message, Message):
            return False
        return self.run.extend(message)

    def close(self) -> None:
        """Have the next receipt and the next ack take the long way."""
        self.lent = NOTHING_LENT
        self.run = NO_RUN
