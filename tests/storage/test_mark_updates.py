"""When durable marks are written: soon, seldom, in order, and never ahead of what is durable.

Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes

from magnetar_storage.durable_mark import DurableMark, missing_from, read_mark, write_mark
from magnetar_storage.mark_updates import MarkUpdates


class Place:
    """Where marks lie: it may be slow, or away."""

    is_required = True

    def __init__(self) -> None:
        self.written: list[tuple[float, int]] = []
        self.slow_seconds = 0.0
        self.is_away = False

    async def read(self) -> DurableMark | None:
        raise NotImplementedError

    async def write(self, mark: DurableMark) -> None:
        await time_passes(self.slow_seconds)
        if self.is_away:
            raise ConnectionError("nobody answers")
        self.written.append((asyncio.get_running_loop().time(), mark.sequence))

    def __str__(self) -> str:
        return "the mark"


class World:
    """A store that only counts its groups."""

    def __init__(self) -> None:
        self.place = Place()
        self.sequence = 0
        self.began = asyncio.get_running_loop().time()
        self.marks = MarkUpdates(self.place, 1, lambda: self.sequence, "the store")

    def group(self) -> None:
        self.sequence += 1
        self.marks.group_is_durable()

    @property
    def written(self) -> list[tuple[float, int]]:
        return [(round(at - self.began, 3), sequence) for at, sequence in self.place.written]


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def within() -> None:
        world = World()
        await scenario(world)
        await world.marks.stop(in_order=False)

    run_in_virtual_time(within())


def test_a_group_after_a_pause_is_marked_at_once_and_those_behind_it_a_second_later() -> None:
    async def scenario(world: World) -> None:
        world.group()
        await time_passes(0.3)
        world.group()
        await time_passes(0.3)
        world.group()
        await time_passes(10)
        world.group()
        await time_passes(10)
        assert world.written == [(0.0, 1), (1.0, 3), (10.6, 4)]

    run(scenario)


def test_under_load_there_is_one_mark_a_second() -> None:
    async def scenario(world: World) -> None:
        for _ in range(1_000):
            world.group()
            await time_passes(0.01)
        await time_passes(100)
        assert [at for at, _ in world.written] == [float(second) for second in range(11)]
        assert world.written[-1] == (10.0, 1_000)

    run(scenario)


def test_an_idle_store_has_no_marks_written() -> None:
    async def scenario(world: World) -> None:
        world.group()
        await time_passes(3_600)
        assert len(world.written) == 1
        # What says that a group is durable, without one, is no reason either.
        world.marks.group_is_durable()
        await time_passes(3_600)
        assert len(world.written) == 1

    run(scenario)


def test_a_close_in_order_marks_the_last_group_behind_a_write_that_is_under_way() -> None:
    async def scenario(world: World) -> None:
        world.place.slow_seconds = 5.0
        world.group()
        await time_passes(0.1)
        world.group()
        await world.marks.stop(in_order=True)
        assert world.written == [(5.0, 1)], "it cannot overtake what follows"
        # The row that says that the store is closed.
        world.sequence += 1
        await world.marks.write_last()
        assert world.written[-1] == (10.0, 3)
        await time_passes(100)
        assert len(world.written) == 2

    run(scenario)


def test_who_lost_the_store_writes_no_mark_any_more() -> None:
    async def scenario(world: World) -> None:
        world.place.slow_seconds = 5.0
        world.group()
        await time_passes(0.1)
        await world.marks.stop(in_order=False)
        await time_passes(100)
        assert world.written == []

    run(scenario)


def test_a_place_that_does_not_answer_is_asked_each_second_and_complained_of_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scenario(world: World) -> None:
        world.place.is_away = True
        world.group()
        await time_passes(9.5)
        assert world.written == []
        assert caplog.text.count("the mark is not written: nobody answers") == 4
        world.place.is_away = False
        await time_passes(100)
        assert world.written == [(10.0, 1)]
        assert "the mark is written again" in caplog.text

    run(scenario)


@pytest.mark.parametrize(
    ("mark", "missing"),
    [
        (None, None),
        (DurableMark(2, 9), None),
        (DurableMark(2, 10), None),
        (DurableMark(2, 11), "group commits missing at its end: 1 (it ends with number 10"),
        (DurableMark(2, 2_010), "at its end: 2,000 (it ends with number 10, and was durable up to"),
        # Of before a loss that was accepted.
        (DurableMark(1, 99), None),
        (DurableMark(3, 1), "it is a copy from before a loss was accepted"),
    ],
)
def test_a_store_lacks_what_its_mark_says(mark: DurableMark | None, missing: str | None) -> None:
    found = missing_from(DurableMark(2, 10), mark)
    assert (found is None) == (missing is None)
    assert missing is None or (found is not None and missing in found)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert read_mark(write_mark(DurableMark(3, 1 << 60))) == DurableMark(3, 1 << 60)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"7", b'{"generation":1}', b'{"generation":1,"sequence":"2"}', b"\xff"],
)
def test_what_is_no_mark_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_mark(content)
