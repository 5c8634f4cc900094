"""Resident memory of this process, and how freed memory goes back to the operating system."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import psutil


class ProcessMemory:
    """The memory of this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="give-back")
        self._is_busy = False
        try:
            self._trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):
            self._trim = None
        else:
            self._trim.argtypes = (ctypes.c_size_t,)
            self._trim.restype = ctypes.c_int

    def resident_bytes(self) -> int:
        """Return how much memory of the machine this process has."""
        return int(self._process.memory_info().rss)

    def give_back(self) -> None:
        """Begin to give freed memory back; nothing happens where the allocator is not glibc's.

        It keeps freed memory below a block that is still in use. Giving it back takes up to some
        tens of milliseconds, on a thread of its own.
        """
        if self._trim is not None and not self._is_busy:
            self._is_busy = True
            self._executor.submit(self._give_back)

    def _give_back(self) -> None:
        try:
            assert self._trim is not None
            self._trim(0)
        finally:
            self._is_busy = False
