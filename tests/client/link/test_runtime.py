"""Background tasks of a client, and what becomes of them when it closes."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests import virtual_time
from tests.client.fakes import FAST, FakeCluster
from tests.virtual_loop import VirtualClock
from tests.waiting import for_ever, turns

from magnetar import ClientClosed
from magnetar.link.runtime import Runtime


def new_runtime() -> Runtime:
    return Runtime(FakeCluster().transport(), VirtualClock(), Random(7), FAST)


@pytest.mark.parametrize("has_begun", [False, True])
def test_whoever_waits_for_a_task_hears_that_the_client_closed(has_begun: bool) -> None:
    """They got a CancelledError, although nobody had cancelled them."""

    async def test() -> None:
        runtime = new_runtime()
        task = runtime.spawn(for_ever(), "early")
        waiting = asyncio.ensure_future(runtime.result_of(task))
        await turns(has_begun)
        await runtime.cancel_all()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(ClientClosed):
            await runtime.result_of(task)

    virtual_time.run(test())


def test_whoever_is_cancelled_while_they_wait_for_a_task_is_cancelled_alone() -> None:
    async def test() -> None:
        runtime = new_runtime()
        task = runtime.spawn(for_ever(), "early")
        waiting = asyncio.ensure_future(runtime.result_of(task))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not task.done()
        await runtime.cancel_all()

    virtual_time.run(test())


@pytest.mark.filterwarnings("error")
def test_a_closed_client_begins_nothing_more_in_the_background() -> None:
    """A task that began after the others were cancelled ran for ever: nobody cancelled it."""

    async def test() -> None:
        runtime = new_runtime()
        early = runtime.spawn(for_ever(), "early")
        await turns()
        await runtime.cancel_all()
        assert early.cancelled()
        with pytest.raises(ClientClosed):
            await runtime.spawn(for_ever(), "late")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual_time.run(test())
