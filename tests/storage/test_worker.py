"""Thread of a store: it makes calls in order, and ends cleanly however the process ends."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from functools import partial
from textwrap import dedent

import pytest
from tests.forking import in_child
from tests.waiting import PATIENCE_S, turns, wait_until

from magnetar_storage.rocksdb.worker import NAME, Worker


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == NAME}


def test_calls_are_made_in_order_by_another_thread_and_answered() -> None:
    made: list[int] = []

    def call(number: int) -> int:
        made.append(number)
        return threading.get_ident()

    async def scenario() -> None:
        worker = Worker()
        idents = await asyncio.gather(*(worker.run(partial(call, one)) for one in range(100)))
        assert made == list(range(100))
        assert set(idents).isdisjoint({threading.get_ident()})
        assert len(set(idents)) == 1
        worker.close()

    asyncio.run(scenario())


def test_an_exception_reaches_its_caller_alone() -> None:
    def fail() -> None:
        raise OSError("no space")

    async def scenario() -> None:
        worker = Worker()
        first, second = worker.run(fail), worker.run(lambda: "done")
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(outcomes[0], OSError)
        assert outcomes[1] == "done"
        worker.close()

    asyncio.run(scenario())


def test_a_call_whose_caller_is_cancelled_goes_on_and_the_next_one_waits_for_it() -> None:
    """A sync that a shutdown no longer waits for must end before the store is closed."""
    gate = threading.Event()
    made: list[str] = []

    def slow() -> None:
        assert gate.wait(PATIENCE_S)
        made.append("slow")

    async def scenario() -> None:
        worker = Worker()
        waiting = asyncio.ensure_future(worker.run(slow))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        following = asyncio.ensure_future(worker.run(partial(made.append, "next")))
        await turns()
        gate.set()
        await following
        assert made == ["slow", "next"]
        worker.close()

    asyncio.run(scenario())


def test_close_waits_for_calls_and_ends_the_thread() -> None:
    before = threads()
    gate = threading.Event()
    made: list[str] = []

    def slow() -> None:
        assert gate.wait(PATIENCE_S)
        made.append("slow")

    async def scenario() -> None:
        worker = Worker()
        waiting = asyncio.ensure_future(worker.run(slow))
        await turns()
        threading.Timer(0.01, gate.set).start()
        worker.close()
        assert made == ["slow"]
        assert threads() == before
        worker.close()
        await waiting

    asyncio.run(scenario())


def test_a_call_may_outlive_its_event_loop() -> None:
    gate = threading.Event()
    worker = Worker()

    async def scenario() -> None:
        waiting = asyncio.ensure_future(worker.run(partial(gate.wait, PATIENCE_S)))
        await turns()
        waiting.cancel()

    asyncio.run(scenario())
    gate.set()
    assert asyncio.run(worker.run(lambda: "done")) == "done"
    worker.close()


def test_the_thread_of_a_store_that_nothing_refers_to_ends() -> None:
    before = threads()
    worker = Worker()
    assert len(threads()) == len(before) + 1
    del worker
    gc.collect()
    wait_until(lambda: threads() == before)


def test_what_a_call_refers_to_is_free_when_it_has_ended() -> None:
    """RocksDB holds the directory's lock until nothing refers to the database."""

    class Database:
        pass

    async def scenario() -> None:
        worker = Worker()
        gone = threading.Event()
        database = Database()
        end = weakref.finalize(database, gone.set)
        await worker.run(partial(id, database))
        del database
        assert await asyncio.to_thread(gone.wait, PATIENCE_S)
        assert not end.alive
        worker.close()

    asyncio.run(scenario())


def test_an_interpreter_that_ends_waits_for_calls_and_does_not_hang() -> None:
    """RocksDB must not be left in the middle of a call, also if the store was never closed."""
    program = dedent(
        """
        import asyncio, os, time
        from magnetar_storage.rocksdb.worker import Worker

        worker = Worker()

        def slow():
            time.sleep(0.2)
            os.write(1, b"ended")

        async def main():
            asyncio.ensure_future(worker.run(slow))
            await asyncio.sleep(0)

        asyncio.run(main())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == b"ended"
    assert done.stderr == b""


def test_a_forked_child_with_a_copy_ends() -> None:
    """The thread is not in the child: there is nothing to wait for."""
    worker = Worker()
    asyncio.run(worker.run(os.getpid))
    assert in_child(worker.close) == 0
    assert asyncio.run(worker.run(os.getpid)) == os.getpid()
    worker.close()
