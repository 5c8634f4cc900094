"""What the brokers of a process may take of the machine's memory, and what gives way.

RocksDB gets fixed shares for memtables and blocks. The tails of all partitions get what all else in
the process leaves: they make reading faster, and nothing is lost without them. When transactions,
partitions and clients need more, tails keep less.
Source: docs/design/0016-memory.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar_broker.tails import Tails

log = logging.getLogger(__name__)

# Of memory_bytes. With less than the first left, tails do not grow, and freed memory goes back to
# the operating system. With less than the second left, they shrink. Between two looks memtables and
# batches under way grow by up to 35 MiB, seen at 70 MB/s on two cores.
FULL_LEFT_BYTES: Final = 64 << 20
SHRINK_LEFT_BYTES: Final = 40 << 20
# With less, consumers that are only just behind would read from the store.
TAILS_BYTES_MIN: Final = 16 << 20
# Giving back takes some milliseconds, so the process has to have grown by so much since.
GROWTH_BYTES_MIN: Final = 8 << 20


class StoreShares(NamedTuple):
    """Memory that the store gets, in bytes."""

    memtables_bytes: int
    block_cache_bytes: int


def store_shares(memory_bytes: int) -> StoreShares:
    """Return what the store gets of the memory of a process."""
    return StoreShares(memory_bytes * 3 // 16, memory_bytes // 16)


def tails_limit(*, memory_bytes: int, resident_bytes: int, held_bytes: int, most_bytes: int) -> int:
    """Return how many bytes tails may hold.

    Args:
        memory_bytes: what the process may have.
        resident_bytes: what it has.
        held_bytes: what tails hold of that.
        most_bytes: what tails may hold at most, whatever is free.
    """
    free_bytes = max(0, memory_bytes - FULL_LEFT_BYTES - resident_bytes)
    excess_bytes = max(0, resident_bytes - (memory_bytes - SHRINK_LEFT_BYTES))
    return min(most_bytes, max(TAILS_BYTES_MIN, held_bytes + free_bytes - excess_bytes))


class Memory:
    """The memory of a process, which all of its brokers share.

    Args:
        memory_bytes: what the process may have.
        tails_bytes_max: what tails may hold at most, whatever is free.
        resident_bytes: measures what the process has; None: nobody looks, and tails may hold the
            most.
        give_back: returns freed memory to the operating system, at once or soon.
    """

    def __init__(
        self,
        *,
        memory_bytes: int,
        tails_bytes_max: int,
        resident_bytes: Callable[[], int] | None = None,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.tails = Tails(tails_bytes_max)
        self._tails_bytes_max = tails_bytes_max
        self._resident_bytes = resident_bytes
        self._give_back = give_back
        self._was_above = False
        # What the process had when memory was given back last.
        self._returned_at_bytes = 0

    @property
    def is_watched(self) -> bool:
        """Whether look() does anything."""
        return self._resident_bytes is not None

    def look(self) -> int:
        """Fit the tails into what is left. Call it several times a second.

        Returns:
            resident bytes of the process, before anything gave way.
        """
        if self._resident_bytes is None:
            return 0
        resident_bytes = self._resident_bytes()
        self.tails.limit(
            tails_limit(
                memory_bytes=self.memory_bytes,
                resident_bytes=resident_bytes,
                held_bytes=self.tails.byte_count,
                most_bytes=self._tails_bytes_max,
            )
        )
        self._returned_at_bytes = min(self._returned_at_bytes, resident_bytes)
        left_bytes = self.memory_bytes - resident_bytes
        has_grown = resident_bytes - self._returned_at_bytes >= GROWTH_BYTES_MIN
        if left_bytes < SHRINK_LEFT_BYTES or (left_bytes < FULL_LEFT_BYTES and has_grown):
            self._returned_at_bytes = resident_bytes
            self._give_back()
        self._tell(resident_bytes)
        return resident_bytes

    def _tell(self, resident_bytes: int) -> None:
        """Say once that the process has more than it may have, and once that it is below again."""
        is_above = resident_bytes > self.memory_bytes
        if is_above and not self._was_above and self.tails.byte_count <= TAILS_BYTES_MIN:
            log.warning(
                "the process has %d MiB of memory, more than memory_bytes allows (%d MiB), and no"
                " tails to give up: raise it, or lower limits of transactions, partitions and"
                " connections",
                resident_bytes >> 20,
                self.memory_bytes >> 20,
            )
            self._was_above = True
        elif self._was_above and not is_above:
            log.info("the process is below memory_bytes again")
            self._was_above = False
