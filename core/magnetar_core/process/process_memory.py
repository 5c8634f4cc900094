"""Resident memory of this process, and how freed memory goes back to the operating system."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

import psutil

log = logging.getLogger(__name__)

# The allocator's locks are held while memory is given back, so the process rests for so many times
# as long as that took: it takes a twentieth of the time at most.
REST_FACTOR: Final = 20


class ProcessMemory:
    """The memory of this process.

    Args:
        measure: returns the resident bytes; None: as the operating system says.
        trim: gives freed memory back, and blocks meanwhile; None: as the allocator does.
    """

    def __init__(
        self, measure: Callable[[], int] | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        self._measure = measure or _measure
        self._trim = trim or _trim_of_allocator()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="give-back")
        self._resident_bytes = 0
        self._is_measured = True
        self._rests_until_s = -math.inf

    def resident_bytes(self) -> int:
        """Return the resident memory of this process, in bytes.

        If it cannot be read, for example without /proc or because the process cannot open another
        file, the result is the previous one, and 0 at first.
        """
        try:
            self._resident_bytes = self._measure()
        except (OSError, psutil.Error) as error:
            if self._is_measured:
                log.warning("the memory of this process cannot be measured: %s", error)
            self._is_measured = False
        else:
            self._is_measured = True
        return self._resident_bytes

    def give_back(self) -> bool:
        """Begin to give freed memory back; nothing happens where the allocator is not glibc's.

        It keeps freed memory below a block that is still in use. Giving it back takes up to some
        tens of milliseconds, on a thread of its own. Call it on the event loop.

        Returns:
            False: it is doing that, or rests afterwards.
        """
        if self._trim is None:
            return True
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if began_s < self._rests_until_s:
            return False
        self._rests_until_s = math.inf
        trimming = loop.run_in_executor(self._executor, self._trim)
        trimming.add_done_callback(lambda _: self._rest(began_s, loop.time()))
        return True

    def _rest(self, began_s: float, ended_s: float) -> None:
        self._rests_until_s = ended_s + REST_FACTOR * (ended_s - began_s)


def _measure() -> int:
    return int(_this_process().memory_info().rss)


@cache
def _this_process() -> psutil.Process:
    return psutil.Process()


def _trim_of_allocator() -> Callable[[], object] | None:
    """Return glibc's function; None: the allocator is another one."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return lambda: trim(0)
