"""Group commit: nothing leaves before it is durable, and then everything, in order (rules a, b)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.storage.gated import TURNS, Gated
from tests.virtual_time import run as run_in_virtual_time
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar_storage.group_commit import AHEAD_BYTES_MIN, GroupCommit
from magnetar_storage.store import StoreFailed, WriteBatch


class World(Gated[GroupCommit]):
    """What is told of each group is seen, too."""

    def __init__(self) -> None:
        self.observed: list[tuple[int, int]] = []
        super().__init__(
            lambda store: GroupCommit(
                store,
                on_failure=self.failures.append,
                observe=lambda operations, size, _: self.observed.append((operations, size)),
            )
        )


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def within() -> None:
        await scenario(World())

    asyncio.run(asyncio.wait_for(within(), 10))


def fail(*_: object) -> None:
    raise ZeroDivisionError


def test_what_is_abandoned_writes_nothing_and_calls_nobody() -> None:
    """Somebody else may have the store: 0009-owners.md."""

    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        world.durable("being written")
        await turns(TURNS)
        world.put(2)
        world.durable("not written")
        waiting = asyncio.ensure_future(world.commits.durable())
        await turns(TURNS)
        world.commits.abandon()
        world.gate.set()
        with pytest.raises(StoreFailed):
            await waiting
        await turns(TURNS)
        assert world.seen == []
        assert world.failures == []
        assert 2 not in await world.stored()
        with pytest.raises(StoreFailed):
            await world.commits.close()

    run(scenario)


def test_with_nothing_pending_nobody_waits_and_nothing_is_written() -> None:
    """Rule a: with nothing pending it does not wait and forces no sync."""

    async def scenario(world: World) -> None:
        world.durable("before the start")
        await world.commits.start()
        world.durable("at once")
        assert world.seen == ["before the start", "at once"]
        await world.commits.durable()
        await turns(TURNS)
        await world.commits.close()
        assert (world.disk.write_count, world.disk.sync_count) == (0, 0)

    run(scenario)


def test_what_is_appended_in_one_turn_is_one_write_and_one_sync() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        for number in range(5):
            assert world.put(number) == 1
            world.durable(number)
        assert world.seen == []
        await world.commits.durable()
        assert world.seen == [0, 1, 2, 3, 4]
        assert (world.disk.write_count, world.disk.sync_count) == (1, 1)
        assert world.observed == [(5, 20)]
        assert await world.stored() == [0, 1, 2, 3, 4]

    run(scenario)


def test_a_reply_waits_for_the_sync_of_its_group_and_the_next_group_fills_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        first = world.put(1)
        world.durable("first")
        await turns(TURNS)
        assert world.disk.write_count == 1
        assert world.seen == [], "written is not durable"
        world.durable("depends on the first only", first)
        second = world.put(2)
        world.durable("second")
        assert (first, second) == (1, 2)
        await turns(TURNS)
        assert world.disk.write_count == 1, "one group is written at a time"
        world.gate.set()
        await world.commits.durable()
        assert world.seen == ["first", "depends on the first only", "second"]
        assert world.commits.durable_position == 2

    run(scenario)


def test_the_store_hears_of_the_open_group_while_another_one_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        told: list[list[bytes]] = []
        monkeypatch.setattr(
            world.store,
            "write_ahead",
            lambda batch: told.append([key for _, _, key, _ in batch.operations]),
        )

        def put(key: bytes, size: int = AHEAD_BYTES_MIN // 2) -> None:
            world.commits.batch.put("rows", key, bytes(size))
            world.durable(key)

        await world.commits.start()
        world.gate.clear()
        put(b"a", AHEAD_BYTES_MIN)
        assert not told, "nothing is under way"
        await turns(TURNS)
        for key in (b"b", b"c", b"d", b"e"):
            put(key)
        # Each time that it has grown by so much.
        assert told == [[b"b", b"c"], [b"b", b"c", b"d", b"e"]]
        world.gate.set()
        await world.commits.durable()
        world.gate.clear()
        put(b"f", AHEAD_BYTES_MIN)
        await turns(TURNS)
        put(b"g")
        assert len(told) == 2, "the next group begins at nothing"
        world.gate.set()
        await world.commits.durable()
        assert world.seen == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]

    run(scenario)


def test_callbacks_that_callbacks_add_come_after_those_parked_before() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        await world.commits.durable(world.put(0))
        position = world.put(1)

        def first() -> None:
            world.seen.append("first")
            world.durable("now durable", position)
            world.durable("durable for long", 1)

        world.commits.when_durable(position, first)
        world.durable("second", position)
        await world.commits.durable()
        await turns(TURNS)
        assert world.seen == ["first", "second", "now durable", "durable for long"]

    run(scenario)


def test_a_callback_that_appends_makes_a_group_of_its_own() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.put(1)

        def first() -> None:
            world.put(2)
            world.durable("of the second group")
            world.seen.append("first")

        world.commits.when_durable(world.commits.position(), first)
        world.durable("second")
        await world.commits.durable()
        assert world.seen[:2] == ["first", "second"]
        await world.commits.close()
        assert world.seen == ["first", "second", "of the second group"]
        assert await world.stored() == [1, 2]

    run(scenario)


def test_a_callback_that_raises_is_reported_and_the_others_still_run() -> None:
    async def scenario(world: World) -> None:
        reported: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        await world.commits.start()
        world.put(1)
        world.commits.when_durable(world.commits.position(), fail)
        world.durable("after it")
        await world.commits.durable()
        assert world.seen == ["after it"]
        assert isinstance(reported[0]["exception"], ZeroDivisionError)
        await world.commits.durable(world.put(2))
        assert world.failures == []

    run(scenario)


def test_waiters_wait_for_their_own_group_only() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        first = asyncio.create_task(world.commits.durable(world.put(1)))
        cancelled = asyncio.create_task(world.commits.durable())
        await turns(TURNS)
        second = asyncio.create_task(world.commits.durable(world.put(2)))
        await turns(TURNS)
        cancelled.cancel()
        world.disk.sync_seconds = 0.0
        world.gate.set()
        await asyncio.wait([first, second, cancelled])
        assert cancelled.cancelled()
        assert first.exception() is None
        assert second.exception() is None

    run(scenario)


def test_deferred_rows_are_written_once_a_group() -> None:
    async def scenario(world: World) -> None:
        counter = [0]

        def hook(batch: WriteBatch) -> None:
            batch.put("rows", b"900", b"%d" % counter[0])

        world.commits.before_seal(hook)
        await world.commits.start()
        for _ in range(3):
            counter[0] += 1
            world.commits.mark_deferred()
            world.durable(counter[0])
        assert world.commits.position() == 1, "the open group expects a row"
        await world.commits.durable()
        assert world.seen == [1, 2, 3]
        assert world.disk.write_count == 1
        assert await world.store.get("rows", b"900") == b"3"
        await turns(TURNS)
        assert world.disk.write_count == 1, "a hook alone starts no group"

    run(scenario)


def test_what_is_deferred_while_a_group_is_written_goes_with_the_next() -> None:
    async def scenario(world: World) -> None:
        dirty: list[int] = []

        def hook(batch: WriteBatch) -> None:
            for number in dirty:
                batch.put("rows", b"%03d" % number, b"v")
            dirty.clear()

        world.commits.before_seal(hook)
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        await turns(TURNS)
        dirty.append(2)
        world.commits.mark_deferred()
        world.durable("second")
        assert world.commits.position() == 2
        world.gate.set()
        await world.commits.durable()
        assert world.seen == ["second"]
        assert await world.stored() == [1, 2]

    run(scenario)


def test_a_group_that_turns_out_empty_is_no_obstacle() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.commits.mark_deferred()
        world.durable("no row came")
        await world.commits.durable()
        assert world.seen == ["no row came"]
        await world.commits.close()

    run(scenario)


@pytest.mark.parametrize("part", ["write", "sync"])
def test_a_failure_drops_what_was_parked_and_is_told_once(part: str) -> None:
    """Rule b: never retried on top of memory that ran ahead."""

    async def scenario(world: World) -> None:
        await world.commits.start()
        await world.commits.durable(world.put(0))
        (world.disk.fail_next_write if part == "write" else world.disk.fail_next_sync)()
        world.put(1)
        world.durable("never")
        waiters = [asyncio.create_task(world.commits.durable()) for _ in range(3)]
        await asyncio.wait(waiters)
        assert all(isinstance(waiter.exception(), StoreFailed) for waiter in waiters)
        assert len(world.failures) == 1
        with pytest.raises(StoreFailed):
            world.put(2)
        with pytest.raises(StoreFailed):
            world.commits.mark_deferred()
        await world.commits.durable(1)
        with pytest.raises(StoreFailed):
            await world.commits.durable(2)
        world.durable("durable before", 1)
        world.durable("never", 2)
        with pytest.raises(StoreFailed):
            await world.commits.close()
        await turns(TURNS)
        assert world.seen == ["durable before"]
        assert len(world.failures) == 1
        assert world.disk.write_count == (1 if part == "write" else 2), "nothing is retried"

    run(scenario)


def test_a_failure_takes_the_group_that_was_filling_with_it() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        await turns(TURNS)
        world.put(2)
        world.durable("never")
        filling = asyncio.create_task(world.commits.durable())
        await turns(TURNS)
        world.disk.fail_next_sync()
        world.gate.set()
        await asyncio.wait([filling])
        assert isinstance(filling.exception(), StoreFailed)
        assert world.seen == []
        assert world.disk.write_count == 1

    run(scenario)


def test_a_hook_that_raises_fails_the_group() -> None:
    async def scenario(world: World) -> None:
        world.commits.before_seal(fail)
        await world.commits.start()
        with pytest.raises(StoreFailed):
            await world.commits.durable(world.put(1))
        assert [type(failure) for failure in world.failures] == [ZeroDivisionError]
        assert world.disk.write_count == 0

    run(scenario)


def test_close_while_a_group_is_written_drains_it_and_what_came_after() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        world.durable("first")
        await turns(TURNS)
        world.put(2)
        world.durable("second")
        closing = asyncio.create_task(world.commits.close())
        again = asyncio.create_task(world.commits.close())
        await turns(TURNS)
        world.put(3)
        world.durable("third, while it closes")
        assert not closing.done()
        world.gate.set()
        await closing
        await again
        assert world.seen == ["first", "second", "third, while it closes"]
        assert await world.stored() == [1, 2, 3]
        with pytest.raises(StoreFailed):
            world.put(4)
        world.durable("what is durable is still answered")
        assert world.seen[-1] == "what is durable is still answered"
        assert world.failures == []

    run(scenario)


def test_close_after_close_was_cancelled_still_drains() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        closing = asyncio.create_task(world.commits.close())
        await turns(TURNS)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        world.gate.set()
        await world.commits.close()
        assert await world.stored() == [1]

    run(scenario)


def test_a_cancelled_writer_leaves_nobody_waiting() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        world.put(1)
        world.durable("never")
        waiting = asyncio.create_task(world.commits.durable())
        await turns(TURNS)
        for task in asyncio.all_tasks():
            if task.get_name() == "group-commit":
                task.cancel()
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), StoreFailed)
        with pytest.raises(StoreFailed):
            await world.commits.close()
        with pytest.raises(StoreFailed):
            world.put(2)
        assert world.seen == []
        assert world.failures == [], "whoever cancelled it knows"

    run(scenario)


def test_what_was_appended_before_the_start_is_written_after_it() -> None:
    async def scenario(world: World) -> None:
        world.put(1)
        world.durable("first")
        await turns(TURNS)
        assert world.disk.write_count == 0
        await world.commits.start()
        await world.commits.durable()
        assert world.seen == ["first"]

    run(scenario)


def test_a_close_that_cannot_write_says_so() -> None:
    """Docstring of close: everything appended is durable, or StoreFailed."""

    async def scenario(world: World) -> None:
        world.put(1)
        with pytest.raises(StoreFailed):
            await world.commits.close()

    run(scenario)


def test_positions_of_the_future_are_a_bug() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        with pytest.raises(AssertionError):
            world.commits.when_durable(1, lambda: None)

    run(scenario)


def test_unhurried_rows_wait_for_a_group_that_somebody_waits_for() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        with world.commits.unhurried():
            world.put(1)
            world.durable("nobody hurries")
        await turns(TURNS)
        assert (world.disk.write_count, world.seen) == (0, [])
        world.put(2)
        world.durable("somebody waits")
        await world.commits.durable()
        assert world.seen == ["nobody hurries", "somebody waits"]
        assert (world.disk.write_count, world.disk.sync_count) == (1, 1)
        assert world.observed == [(2, 8)]

    run(scenario)


def test_whoever_waits_for_unhurried_rows_begins_the_group() -> None:
    """A reply that depends on them, a refusal too, waits for them, and not longer than needed."""

    async def scenario(world: World) -> None:
        await world.commits.start()
        with world.commits.unhurried():
            position = world.put(1)
        assert world.commits.position() == position == 1
        await turns(TURNS)
        assert world.disk.write_count == 0
        world.durable("depends on it")
        assert world.seen == []
        await turns(TURNS)
        assert world.seen == ["depends on it"]
        assert await world.stored() == [1]

    run(scenario)


def test_unhurried_rows_do_not_follow_the_group_under_way() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        world.gate.clear()
        first = world.put(1)
        await turns(TURNS)
        with world.commits.unhurried():
            world.put(2)
        world.gate.set()
        await world.commits.durable(first)
        await turns(TURNS)
        assert world.disk.write_count == 1
        world.put(3)
        await world.commits.durable()
        assert world.disk.write_count == 2
        assert await world.stored() == [1, 2, 3]

    run(scenario)


def test_unhurried_rows_wait_for_a_fifth_of_a_second_at_most() -> None:
    async def scenario() -> None:
        world = World()
        world.disk.sync_seconds = 0.0
        await world.commits.start()
        with world.commits.unhurried():
            world.put(1)
            await time_passes(0.1)
            world.put(2)
        await time_passes(0.09)
        assert world.disk.write_count == 0
        await time_passes(0.02)
        assert (world.disk.write_count, world.commits.durable_position) == (1, 1)
        # The next ones have their own time.
        with world.commits.unhurried():
            world.put(3)
        await time_passes(0.19)
        assert world.disk.write_count == 1
        await time_passes(0.02)
        assert await world.stored() == [1, 2, 3]

    run_in_virtual_time(scenario())


def test_closing_writes_unhurried_rows() -> None:
    async def scenario(world: World) -> None:
        await world.commits.start()
        with world.commits.unhurried():
            world.put(1)
        await world.commits.close()
        assert await world.stored() == [1]

    run(scenario)


def test_how_long_a_group_is_under_way() -> None:
    async def scenario() -> None:
        world = World()
        await world.commits.start()
        assert world.commits.seconds_under_way() == 0.0
        world.gate.clear()
        world.put(1)
        await time_passes(2.0)
        assert world.commits.seconds_under_way() == pytest.approx(2.0)
        world.gate.set()
        await world.commits.durable()
        assert world.commits.seconds_under_way() == 0.0

    run_in_virtual_time(scenario())
