"""Accumulated run time: downtime does not count, and the wall clock decides nothing."""

from __future__ import annotations

from magnetar_core.process.run_time import RunTime


class Clock:
    wall = 1_000_000
    monotonic = 50.0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic


def test_counts_on_from_what_was_persisted() -> None:
    clock = Clock()
    run_time = RunTime(clock, start_ms=7_000, jump_ms_min=1_000)
    assert run_time.now_ms() == 7_000
    clock.monotonic += 250
    assert run_time.now_ms() == 7_250


def test_a_jump_of_the_wall_clock_is_told_once_and_changes_nothing() -> None:
    clock = Clock()
    run_time = RunTime(clock, start_ms=0, jump_ms_min=1_000)
    clock.wall += 999
    assert run_time.wall_jump_ms() == 0
    for jump_ms in (3_600_000, -7_200_000):
        clock.wall += jump_ms
        assert run_time.wall_jump_ms() == jump_ms
        assert run_time.wall_jump_ms() == 0
    assert run_time.now_ms() == 0
