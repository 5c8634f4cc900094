"""The clock of leases counts the time that a machine sleeps."""

from __future__ import annotations

import time

import pytest

from magnetar_core.clock import since_boot_ms


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has this clock")
def test_the_clock_of_leases_is_the_one_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    read = time.clock_gettime_ns

    def remember(number: int) -> int:
        asked.append(number)
        return read(number)

    monkeypatch.setattr(time, "clock_gettime_ns", remember)
    assert since_boot_ms() == pytest.approx(read(time.CLOCK_BOOTTIME) / 1_000_000, abs=60_000)
    assert asked == [time.CLOCK_BOOTTIME]
