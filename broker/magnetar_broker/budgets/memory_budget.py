"""Memory budget of the brokers of a process; the tails of logs give way.

The store gets fixed shares for memtables and blocks. The tails of all partitions get the memory
that everything else in the process leaves: they make reading faster, and nothing is lost without
them. When transactions, partitions and clients need more, tails keep less.
Source: docs/design/0016-memory.md.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar_broker.budgets.tails import Tails

log = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 0.25
# A fast producer fills half of a small memory between two looks, and a busy machine is late with
# them: so there is one after so much was appended, too.
LOOK_GROWTH_BYTES: Final = 8 << 20
# What the process has without any of them; memtables get a quarter of the rest. More than the most
# is of no use: RocksDB flushes for the limit of its write-ahead log, 128 MiB.
BASE_BYTES: Final = 128 << 20
MEMTABLES_BYTES_MAX: Final = 96 << 20
# Of memory_bytes. With less than the first left, tails do not grow, and freed memory goes back to
# the operating system. With less than the second left, they shrink: memtables and batches
# under way grow between two looks.
FULL_LEFT_BYTES: Final = 64 << 20
SHRINK_LEFT_BYTES: Final = 40 << 20
# With less than that left after memory was given back, they shrink although that frees little.
INSIST_LEFT_BYTES: Final = 16 << 20
# With less, consumers that are only just behind would read from the store.
TAILS_BYTES_MIN: Final = 16 << 20
# Giving back takes some milliseconds, so the process has to have grown by so much since, or tails
# have to have shrunk.
GROWTH_BYTES_MIN: Final = 8 << 20


class StoreShares(NamedTuple):
    """Memory that the store gets, in bytes.

    Attributes:
        memtables_bytes, block_cache_bytes: of RocksDB.
        object_cache_bytes: for blocks of an object store, unless a setting says otherwise. A half
            more is used in fact.
    """

    memtables_bytes: int
    block_cache_bytes: int
    object_cache_bytes: int


def store_shares(memory_bytes: int) -> StoreShares:
    """Return the store's share of the memory of a process."""
    return StoreShares(
        memtables_bytes=min(MEMTABLES_BYTES_MAX, (memory_bytes - BASE_BYTES) // 4),
        block_cache_bytes=memory_bytes // 16,
        object_cache_bytes=memory_bytes // 8,
    )


def tails_limit(
    *,
    memory_bytes: int,
    resident_bytes: int,
    accepted_bytes: int,
    held_bytes: int,
    most_bytes: int,
) -> int:
    """Return how many bytes tails may hold.

    Args:
        memory_bytes: what the process may have.
        resident_bytes: what it has.
        accepted_bytes: what it may have before tails shrink.
        held_bytes: what tails hold of that.
        most_bytes: what tails may hold at most, whatever is free.
    """
    free_bytes = max(0, memory_bytes - FULL_LEFT_BYTES - resident_bytes)
    excess_bytes = max(0, resident_bytes - accepted_bytes)
    return min(most_bytes, max(TAILS_BYTES_MIN, held_bytes + free_bytes - excess_bytes))


class MemoryBudget:
    """The memory of a process, which all of its brokers share.

    Args:
        memory_bytes: the memory that the process may have. tails_bytes_max: the most that tails may
            hold, even if more is free. resident_bytes: measures the memory of the process; None: it
            is not measured, and tails may hold the most.
        give_back: begins to return freed memory to the operating system; False: it has just done
            that, and rests.
    """

    def __init__(
        self,
        *,
        memory_bytes: int,
        tails_bytes_max: int,
        resident_bytes: Callable[[], int] | None = None,
        give_back: Callable[[], bool] = lambda: True,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.tails = Tails(tails_bytes_max)
        if resident_bytes is not None:
            self.tails.after_each(LOOK_GROWTH_BYTES, self._look)
        # At the latest look.
        self.resident_bytes = 0
        self._tails_bytes_max = tails_bytes_max
        self._measure = resident_bytes
        self._give_back = give_back
        self._was_above = False
        self._next_look_s = -math.inf
        # What the process may have before tails shrink.
        self._accepted_bytes = self._shrink_from_bytes = memory_bytes - SHRINK_LEFT_BYTES
        # What the process had when memory was given back last.
        self._returned_at_bytes = 0
        # Whether memory was given back since tails shrank.
        self._is_returned = True

    @property
    def is_watched(self) -> bool:
        """Whether look() does anything."""
        return self._measure is not None

    def look(self, now_s: float) -> float:
        """Fit the tails into what is left, unless another broker of the process has just done so.

        Args:
            now_s: the event loop's time, in seconds.
        Returns:
            seconds until the next look.
        """
        if now_s < self._next_look_s:
            return self._next_look_s - now_s
        self._next_look_s = now_s + LOOK_INTERVAL_S
        self._look()
        return LOOK_INTERVAL_S

    def _look(self) -> None:
        assert self._measure is not None
        self.resident_bytes = resident_bytes = self._measure()
        held_bytes = self.tails.byte_count
        self._fit_tails(resident_bytes)
        self._returned_at_bytes = min(self._returned_at_bytes, resident_bytes)
        if self._is_worth_returning(resident_bytes) and self._give_back():
            self._returned_at_bytes = resident_bytes
            self._is_returned = True
        self._tell(resident_bytes, held_bytes)

    def _fit_tails(self, resident_bytes: int) -> None:
        """Let tails grow into what is free, or shrink them by what is missing.

        What they drop may stay in the process: until it is given back, and longer where what they
        keep lies between. The process takes it first when it needs more. So they shrink again when
        the process has grown, or when nearly nothing is left after all was given back.
        """
        self._accepted_bytes = max(
            self._shrink_from_bytes, min(self._accepted_bytes, resident_bytes)
        )
        accepted_bytes = self._accepted_bytes
        if self._is_returned:
            accepted_bytes = min(accepted_bytes, self.memory_bytes - INSIST_LEFT_BYTES)
        held_bytes = self.tails.byte_count
        self.tails.limit(
            tails_limit(
                memory_bytes=self.memory_bytes,
                resident_bytes=resident_bytes,
                accepted_bytes=accepted_bytes,
                held_bytes=held_bytes,
                most_bytes=self._tails_bytes_max,
            )
        )
        self._accepted_bytes = max(accepted_bytes, resident_bytes)
        if self.tails.byte_count < held_bytes:
            self._is_returned = False

    def _is_worth_returning(self, resident_bytes: int) -> bool:
        if self.memory_bytes - resident_bytes >= FULL_LEFT_BYTES:
            return False
        has_grown = resident_bytes - self._returned_at_bytes >= GROWTH_BYTES_MIN
        return has_grown or not self._is_returned

    def _tell(self, resident_bytes: int, held_bytes: int) -> None:
        """Say once that the process has more than it may have, and once that it is well below.

        Args:
            resident_bytes: what the process has.
            held_bytes: what tails held of that.
        """
        is_above = resident_bytes > self.memory_bytes
        if is_above and not self._was_above and held_bytes <= TAILS_BYTES_MIN:
            log.warning(
                "the process has %d MiB of memory, more than memory_bytes allows (%d MiB), and no"
                " tails to give up: raise it, or lower limits of transactions, partitions and"
                " connections",
                resident_bytes >> 20,
                self.memory_bytes >> 20,
            )
            self._was_above = True
        elif self._was_above and resident_bytes <= self._shrink_from_bytes:
            log.info("the process is below memory_bytes again")
            self._was_above = False
