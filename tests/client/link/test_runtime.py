"""Background tasks of a client, and what becomes of them when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests import virtual_time
from tests.client.fakes import FAST, FakeCluster
from tests.virtual_loop import VirtualClock
from tests.virtual_time import time_passes
from tests.waiting import for_ever, turns

from magnetar import ClientClosed, ClientFailed, QuotaExceeded
from magnetar.link.runtime import Runtime, WorkOwner, awaited
from magnetar_core.errors import MagnetarError


def new_runtime() -> Runtime:
    return Runtime(FakeCluster().transport(), VirtualClock(), Random(7), FAST)


@pytest.mark.parametrize("has_begun", [False, True])
def test_whoever_waits_for_a_task_hears_that_the_client_closed(has_begun: bool) -> None:
    """They got a CancelledError, although nobody had cancelled them."""

    async def test() -> None:
        runtime = new_runtime()
        task = runtime.spawn(for_ever, "early", awaited)
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
        task = runtime.spawn(for_ever, "early", awaited)
        waiting = asyncio.ensure_future(runtime.result_of(task))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not task.done()
        await runtime.cancel_all()

    virtual_time.run(test())


@pytest.mark.filterwarnings("error")
def test_a_closed_client_begins_nothing_more_in_the_background(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task that began after the others were cancelled ran for ever: nobody cancelled it.

    Then it was refused, and the log of an application that ended said "the client failed".
    """

    async def test() -> None:
        runtime = new_runtime()
        early = runtime.spawn(for_ever, "early", awaited)
        await turns()
        await runtime.cancel_all()
        assert early.cancelled()
        with pytest.raises(ClientClosed):
            await runtime.spawn(for_ever, "late", awaited)
        with pytest.raises(ClientClosed):
            await runtime.spawn(for_ever, "later", runtime.fail)
        assert runtime.failure is None
        assert not caplog.messages
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual_time.run(test())


STARTS: list[Callable[[Runtime, WorkOwner], object]] = [
    lambda runtime, owner: runtime.call_soon(owner, die),
    lambda runtime, owner: runtime.call_later(owner, 1, die),
    lambda runtime, owner: runtime.deadlines.call_later(owner, 1, die),
    lambda runtime, owner: runtime.spawn(die_in_a_task, "work", owner),
    lambda runtime, owner: runtime.when_done(
        owner, runtime.spawn(turns, "work", awaited), lambda task: die()
    ),
    lambda runtime, owner: runtime.loop.call_soon(runtime.owned(owner, die)),
]


def die() -> None:
    raise ZeroDivisionError


async def die_in_a_task() -> None:
    die()


@pytest.mark.parametrize("start", STARTS)
def test_an_owner_hears_of_the_death_of_its_work(
    start: Callable[[Runtime, WorkOwner], object],
) -> None:
    async def test() -> None:
        runtime = new_runtime()
        told: list[str] = []
        runtime.loop.set_exception_handler(lambda loop, context: told.append(context["message"]))
        failures: list[MagnetarError] = []
        start(runtime, failures.append)
        await time_passes(0.1)
        (failure,) = failures
        assert isinstance(failure, ClientFailed)
        assert isinstance(failure.__cause__, ZeroDivisionError)
        assert len(told) == 1
        assert runtime.failure is None

    virtual_time.run(test())


@pytest.mark.parametrize("start", STARTS)
def test_the_client_fails_when_an_owner_does(start: Callable[[Runtime, WorkOwner], object]) -> None:
    async def test() -> None:
        runtime = new_runtime()
        runtime.loop.set_exception_handler(lambda loop, context: None)
        failures: list[MagnetarError] = []
        runtime.on_failed = failures.append
        start(runtime, lambda error: 1 // 0)
        await time_passes(0.1)
        assert failures == [runtime.failure]
        runtime.fail(ClientFailed("again"))
        assert failures == [runtime.failure]

    virtual_time.run(test())


def test_whoever_waits_for_a_result_is_told_that_it_could_not_be_handled() -> None:
    async def test() -> None:
        runtime = new_runtime()
        runtime.loop.set_exception_handler(lambda loop, context: None)
        told: list[object] = []

        def on_result(result: object) -> None:
            told.append(result)
            if result == "answer":
                die()

        runtime.tell(on_result, "answer")
        assert [type(one) for one in told] == [str, ClientFailed]
        assert runtime.failure is None

    virtual_time.run(test())


def test_an_error_that_applications_know_is_told_as_it_is() -> None:
    async def test() -> None:
        runtime = new_runtime()
        failures: list[MagnetarError] = []
        error = QuotaExceeded()

        async def refused() -> None:
            raise error

        with pytest.raises(QuotaExceeded) as raised:
            await runtime.spawn(refused, "work", failures.append)
        assert failures == [error]
        assert raised.value is error
        assert error.__cause__ is None

    virtual_time.run(test())


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_the_end_of_the_program_goes_on_when_an_owner_was_told(end: type[BaseException]) -> None:
    async def test() -> None:
        runtime = new_runtime()
        runtime.loop.set_exception_handler(lambda loop, context: None)
        failures: list[MagnetarError] = []

        def interrupted() -> None:
            raise end

        with pytest.raises(end):
            runtime.guarded(failures.append, interrupted)
        assert [type(failure) for failure in failures] == [ClientFailed]

    virtual_time.run(test())
