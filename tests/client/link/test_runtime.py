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
