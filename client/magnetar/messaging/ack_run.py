"""Acks of the messages of a batch, one after the other, that are gathered as a range. Pure.

The first ack takes the long way: it checks everything, and begins a run. While the run is open,
nothing has happened on which the answer of those checks depends, so that the ack of the next
message is a comparison and an addition. Whatever looks at acks, or changes what they mean, ends the
run first and gets its range.
"""

from __future__ import annotations

from threading import Lock

from magnetar.message import Message, ReceivedBatch
from magnetar.messaging.interval_set import Range


class AckRun:
    """A run of acks; it is not open until `begin` is called.

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
        with self._lock:
            batch, self.batch = self.batch, None
            first, end = self._first_place, self.next_place
        if batch is None or first == end:
            return None
        return batch.first_offset + first, batch.first_offset + end - 1


# Of a consumer that has acknowledged nothing, or has to take the long way next. It is never opened.
NO_RUN = AckRun()
