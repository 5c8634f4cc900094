"""A full disk: what takes room is refused; the log is told when it begins and when it ends."""

from __future__ import annotations

import logging

import pytest

from magnetar_core.errors import DiskFull
from magnetar_storage.disk_reserve import CHECK_INTERVAL_MS, DiskReserve
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_full_disk_and_its_end_are_logged_once_each(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    reserve = DiskReserve(MemoryStore(disk, ()), clock, floor_bytes=100 << 20)

    def looks(free_bytes: int, *, refused: bool) -> None:
        disk.free_bytes = free_bytes
        for _ in range(50):
            clock.now_ms += CHECK_INTERVAL_MS
            if refused:
                with pytest.raises(DiskFull, match="free space, or add some"):
                    reserve.check()
            else:
                reserve.check()

    caplog.set_level(logging.INFO)
    for _ in range(2):
        looks(100 << 20, refused=False)
        assert caplog.messages == []
        looks((100 << 20) - 1, refused=True)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "the disk is full: 99 MiB are free" in caplog.text
        caplog.clear()
        looks(200 << 20, refused=False)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "room again" in caplog.text
        caplog.clear()


def test_the_end_is_noticed_without_anybody_asking_for_room(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    reserve = DiskReserve(MemoryStore(disk, ()), clock, floor_bytes=10)
    disk.free_bytes = 9
    assert reserve.look() == 9
    disk.free_bytes = 10
    assert reserve.look() == 9, "a look costs a call of the system"
    clock.now_ms += CHECK_INTERVAL_MS
    assert reserve.look() == 10
    assert "room again" in caplog.text
