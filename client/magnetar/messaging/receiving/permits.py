"""Permits that let brokers send ahead of the application: numbers of messages and of bytes. Pure.

Each partition has a window of bytes: what its broker may still send, and what waits for the
application. It begins small and doubles while the application takes messages, so that a partition
which is not read holds little. All windows of a client share a budget. A window gets what the
budget has left, up to an equal share. Partitions that had more before others came may keep it for
long, since a broker does not give permits back: so each gets its first window in any case. And it
may have one batch, however large, or it would never go on.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.config import ConsumerConfig
from magnetar.message import ReceivedBatch

# The first window of a partition.
WINDOW_BYTES_FIRST = 1 << 20


class PrefetchBudget:
    """The bytes that all partitions of a client may have ahead of the application.

    Attributes:
        held_bytes: what is granted to brokers, and waits for the application.
    """

    def __init__(self, bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._partition_count = 0

    @property
    def share(self) -> int:
        """Bytes that a partition may have."""
        return max(1, self._bytes_max // max(1, self._partition_count))

    def join(self) -> None:
        """Share the budget with one more partition."""
        self._partition_count += 1

    def leave(self) -> None:
        """Share the budget with one partition less."""
        self._partition_count -= 1

    def take(self, held: int, wanted: int) -> int:
        """Take bytes for a partition that has some, and asks for more in all.

        Returns:
            The bytes that it gets: all that it asks for, as long as the budget lasts. Beyond that,
            what its first window lacks, up to twice the budget; and enough for a batch, if it has
            none.
        """
        left = self._bytes_max - self.held_bytes
        first = min(WINDOW_BYTES_FIRST, self.share) - held
        left = max(left, min(first, left + self._bytes_max))
        taken = max(0, min(wanted - held, left), 1 - held)
        self.held_bytes += taken
        return taken

    def give_back(self, byte_count: int) -> None:
        """Give back bytes that a partition no longer has."""
        self.held_bytes -= byte_count


class Permits:
    """The permits of a partition, renewed when half of its queue or its window is used."""

    __slots__ = (
        "_budget",
        "_bytes_max",
        "_count",
        "_flow",
        "_held",
        "_is_closed",
        "_messages_max",
        "_window",
    )

    def __init__(
        self, config: ConsumerConfig, budget: PrefetchBudget, flow: Callable[[int, int], None]
    ) -> None:
        """No permits are given yet.

        Args:
            budget: what the client's partitions share; close() leaves it.
            flow: gives the broker more permits: a number of messages, and a number of bytes.
        """
        self._messages_max = config.receiver_queue_messages
        self._bytes_max = config.receiver_queue_bytes
        self._budget = budget
        self._flow = flow
        # Messages that have left the queue, and for which the broker has no new permits yet.
        self._count = 0
        # Bytes that the broker may send, and that wait in the queue. Below 0: the last batch was
        # larger than its permits.
        self._held = 0
        self._window = 0
        self._is_closed = False
        budget.join()

    def begin(self) -> None:
        """Begin with a new attachment, whose queue is empty."""
        self.clear()
        self._window = min(WINDOW_BYTES_FIRST, self._bytes_max, self._budget.share)
        self._held = self._budget.take(0, self._window)
        self._flow(self._messages_max, self._held)

    def clear(self) -> None:
        """Forget an attachment: its permits are void, and its queue is empty."""
        self._count = 0
        self._budget.give_back(self._held)
        self._held = 0

    def close(self) -> None:
        """Leave the budget: nothing is asked for from now on. May be repeated."""
        if not self._is_closed:
            self._is_closed = True
            self.clear()
            self._budget.leave()

    @property
    def left(self) -> int:
        """Number of messages that have to leave the queue before the permits are renewed."""
        return max(1, self._messages_max // 2) - self._count

    def use(self, count: int) -> None:
        """Note that messages have left the queue."""
        self._count += count
        if self.left <= 0:
            self._top_up()

    def use_bytes(self, batch: ReceivedBatch) -> None:
        """Note that a batch has left the queue."""
        if not batch.permits or self._is_closed:
            return
        size = len(batch.data)
        self._held -= size
        self._budget.give_back(size)
        if self._held <= self._window // 2:
            self._window = min(2 * self._window, self._bytes_max, self._budget.share)
            self._top_up()

    def _top_up(self) -> None:
        if self._is_closed:
            return
        count, self._count = self._count, 0
        taken = self._budget.take(self._held, self._window)
        self._held += taken
        self._flow(count, taken)
