"""Memory of this process, as the operating system and the allocator tell of it."""

from __future__ import annotations

import asyncio
import logging
import mmap
import threading

import psutil
import pytest

from magnetar_core.process.process_memory import REST_FACTOR, ProcessMemory

MIB = 1 << 20


def test_the_resident_bytes_are_those_of_the_operating_system() -> None:
    memory = ProcessMemory()
    before_bytes = memory.resident_bytes()
    # A block of the allocator may lie in memory that an earlier test has freed, a mapping cannot.
    with mmap.mmap(-1, 64 * MIB) as block:
        block.write(b"x" * len(block))
        grown_bytes = memory.resident_bytes() - before_bytes
        assert len(block) <= grown_bytes + MIB
        assert memory.resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, abs=MIB)


def test_a_look_that_fails_says_so_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[int | Exception] = [
        OSError("too many open files"),
        7,
        OSError("too many open files"),
        psutil.AccessDenied(1),
        8,
        OSError("too many open files"),
    ]

    def measure() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    memory = ProcessMemory(measure)
    assert [memory.resident_bytes() for _ in range(6)] == [0, 7, 7, 7, 8, 8]
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert told == ["the memory of this process cannot be measured: too many open files"] * 3


def test_giving_back_takes_a_part_of_the_time_at_most() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        loop.time = lambda: now_s  # type: ignore[method-assign]
        goes_on, trims = threading.Event(), 0

        def trim() -> None:
            nonlocal trims
            goes_on.wait()
            trims += 1

        ended = asyncio.Event()

        class Noted(ProcessMemory):
            def _rest(self, began_s: float, ended_s: float) -> None:
                super()._rest(began_s, ended_s)
                ended.set()

        memory = Noted(trim=trim)
        assert memory.give_back()
        now_s += 0.5
        assert not memory.give_back()
        goes_on.set()
        await ended.wait()
        assert trims == 1
        now_s += 0.5 * REST_FACTOR - 0.001
        assert not memory.give_back()
        now_s += 0.002
        ended.clear()
        assert memory.give_back()
        await ended.wait()
        assert trims == 2

    asyncio.run(scenario())


def test_freed_memory_goes_back() -> None:
    """Where glibc allocates: pieces between others that are still in use."""

    async def scenario() -> None:
        memory = ProcessMemory()
        if memory._trim is None:
            pytest.skip("the allocator is not glibc's")
        # Small enough not to be mapped one by one, large enough to have whole pages.
        pieces = [bytes([number % 251]) * 65_000 for number in range(1_600)]
        kept = pieces[::8]
        del pieces
        before_bytes = memory.resident_bytes()
        memory._trim()
        assert before_bytes - memory.resident_bytes() > 50 * MIB
        assert len(kept) == 200

    asyncio.run(scenario())
