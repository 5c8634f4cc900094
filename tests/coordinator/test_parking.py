"""What a run parks: in order, once for each list, and each call for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.virtual_time import run

from magnetar_coordinator.metadata.records import FAMILIES, META
from magnetar_coordinator.parking import Parking
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore


def with_parking(scenario: Callable[[GroupCommit, Parking], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        commits = GroupCommit(MemoryStore(MemoryDisk(), FAMILIES), on_failure=_never)
        await commits.start()
        await scenario(commits, Parking(commits))
        await commits.close()

    run(main())


def _never(error: BaseException) -> None:
    raise AssertionError(error)


def test_items_of_a_run_leave_in_one_list_when_all_are_durable() -> None:
    async def scenario(commits: GroupCommit, parking: Parking) -> None:
        left: list[list[str]] = []
        with parking.together():
            for name in ("first", "second"):
                commits.batch.put(META, name.encode(), b"")
                parking.gather(left.append, name)
        assert not left
        await commits.durable()
        assert left == [["first", "second"]]

    with_parking(scenario)


def test_items_outside_of_a_run_leave_alone() -> None:
    async def scenario(commits: GroupCommit, parking: Parking) -> None:
        left: list[list[str]] = []
        parking.gather(left.append, "durable already")
        assert left == [["durable already"]]
        for name in ("first", "second"):
            commits.batch.put(META, name.encode(), b"")
            parking.gather(left.append, name)
        await commits.durable()
        assert left[1:] == [["first"], ["second"]]

    with_parking(scenario)


def test_what_a_run_collects_is_called_at_its_end_and_parks_with_it() -> None:
    async def scenario(commits: GroupCommit, parking: Parking) -> None:
        left: list[list[str]] = []

        def store(names: list[str]) -> None:
            for name in names:
                commits.batch.put(META, name.encode(), b"")
            parking.when_durable(left.append, names)

        with parking.together():
            for name in ("first", "second"):
                parking.collect(store, name)
            assert not commits.batch.operations
        assert len(commits.batch.operations) == 2
        assert not left
        parking.collect(store, "alone")
        await commits.durable()
        assert left == [["first", "second"], ["alone"]]

    with_parking(scenario)


def test_a_call_that_raises_takes_no_other_with_it() -> None:
    async def scenario(commits: GroupCommit, parking: Parking) -> None:
        left: list[str] = []
        reported: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def fail(name: str) -> None:
            raise ZeroDivisionError(name)

        with parking.together():
            commits.batch.put(META, b"row", b"")
            parking.when_durable(left.append, "before")
            parking.when_durable(fail, "between")
            parking.when_durable(left.append, "behind")
        await commits.durable()
        assert left == ["before", "behind"]
        assert [type(one) for one in reported] == [ZeroDivisionError]

    with_parking(scenario)


def test_a_run_that_is_left_by_an_exception_parks_what_it_has() -> None:
    async def scenario(commits: GroupCommit, parking: Parking) -> None:
        left: list[str] = []
        try:
            with parking.together():
                commits.batch.put(META, b"row", b"")
                parking.when_durable(left.append, "decided")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        await commits.durable()
        assert left == ["decided"]

    with_parking(scenario)
