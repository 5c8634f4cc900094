"""Measures the present speed of this machine, for work like the product's.

A pass makes objects, calls methods, fills dictionaries and joins bytes for most of its time, and
lets C code read, copy and compress memory for the rest. It has nothing of the product in it, which
would hide what a change did. It is timed by the thread's clock, which stands while others have the
processor.
"""

from __future__ import annotations

import gc
import time
import zlib
from collections.abc import Callable
from statistics import median

ENTRIES = 16_000
PIECE_BYTES = 100
ROUNDS_OVER_MEMORY = 12
# A pass is the same work everywhere.
CHECKSUM = 1_109_673_753
PASSES = 4


class _Entry:
    __slots__ = ("number", "piece", "slot")

    def __init__(self, number: int, piece: bytes) -> None:
        self.number = number
        self.piece = piece
        self.slot = number % 64

    def weight(self, least: int) -> int:
        return self.number if self.number > least else least


def one_pass() -> int:
    """Do the work; return what came out of it."""
    slots: dict[int, list[_Entry]] = {}
    pieces = [bytes([number % 251]) * PIECE_BYTES for number in range(256)]
    total = 0
    for number in range(ENTRIES):
        entry = _Entry(number, pieces[number & 255])
        slots.setdefault(entry.slot, []).append(entry)
        total += entry.weight(100)
    joined = b"".join(
        entry.piece for _, found in sorted(slots.items()) for entry in found if entry.number & 1
    )
    checksum = total & 0xFFFFFFFF
    for _ in range(ROUNDS_OVER_MEMORY):
        checksum = zlib.crc32(bytearray(joined), checksum)
    # Libraries compress to different bytes.
    restored = zlib.decompress(zlib.compress(joined[: len(joined) // 4], 1))
    return zlib.crc32(restored, checksum)


def pass_s(
    passes: int = PASSES,
    *,
    work: Callable[[], int] = one_pass,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """The processor time of a pass, the median of a few.

    The garbage collector is off meanwhile: it would look at all that the process has.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return median(_timed_s(work, clock) for _ in range(passes))
    finally:
        if was_enabled:
            gc.enable()


def _timed_s(work: Callable[[], int], clock: Callable[[], float]) -> float:
    began_s = clock()
    checksum = work()
    took_s = clock() - began_s
    if checksum != CHECKSUM:
        raise AssertionError(f"a pass is not what it was: {checksum}")
    return took_s
