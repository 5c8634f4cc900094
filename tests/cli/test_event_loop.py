"""All conversations of a command run on one event loop."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest

from magnetar_cli import event_loop


@pytest.fixture
def command() -> Iterator[click.Context]:
    """A command below the program."""
    root = click.Context(click.Command("magnetar"))
    with root, click.Context(click.Command("topics"), parent=root) as context:
        yield context


async def running() -> asyncio.AbstractEventLoop:
    # Standard input is read on a thread of the loop, and names of hosts are looked up there.
    await asyncio.to_thread(lambda: None)
    return asyncio.get_running_loop()


def test_a_second_conversation_has_the_loop_of_the_first(command: click.Context) -> None:
    """With a loop each, gRPC's late events for the first one ended in tracebacks."""
    first = event_loop.run(running())
    assert not first.is_closed()
    first.call_soon_threadsafe(lambda: None)
    assert event_loop.run(running()) is first


def test_the_loop_ends_with_the_command() -> None:
    """When the interpreter ends it is too late: from Python 3.12 on that was a traceback."""
    with click.Context(click.Command("magnetar")):
        loop = event_loop.run(running())
    assert loop.is_closed()
    with click.Context(click.Command("magnetar")):
        assert event_loop.run(running()) is not loop


def test_what_was_there_before_is_not_looked_through_for_cycles(command: click.Context) -> None:
    imported: list[object] = []
    imported.append(imported)

    async def looked_through() -> bool:
        return any(one is imported for one in gc.get_objects())

    assert any(one is imported for one in gc.get_objects())
    assert not event_loop.run(looked_through())


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    # Others in this process, such as Spark, leave handlers of their own.
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


async def interrupted(number: int) -> None:
    signal.raise_signal(number)
    await asyncio.Event().wait()


def test_an_interrupt_ends_a_conversation_and_the_next_one_works(command: click.Context) -> None:
    with handled(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        event_loop.run(interrupted(signal.SIGINT))
    assert not event_loop.run(running()).is_closed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_another_signal_ends_a_conversation_with_the_status_of_shells(
    command: click.Context, number: int
) -> None:
    cleaned_up = []

    async def work() -> None:
        try:
            await interrupted(number)
        finally:
            cleaned_up.append(number)

    with handled(number, signal.SIG_DFL), pytest.raises(SystemExit) as ended:
        event_loop.run(work())
    assert ended.value.code == 128 + number
    assert cleaned_up == [number]
    assert not event_loop.run(running()).is_closed()


def test_a_signal_that_is_ignored_stays_so(command: click.Context) -> None:
    """Under nohup, and in the background of a script."""

    async def work() -> str:
        signal.raise_signal(signal.SIGHUP)
        await asyncio.to_thread(lambda: None)
        return "done"

    with handled(signal.SIGHUP, signal.SIG_IGN):
        assert event_loop.run(work()) == "done"


def test_what_is_done_when_the_signal_comes_counts(command: click.Context) -> None:
    async def work() -> str:
        signal.raise_signal(signal.SIGTERM)
        return "done"

    with handled(signal.SIGTERM, signal.SIG_DFL):
        assert event_loop.run(work()) == "done"


def test_an_error_while_it_ends_is_not_hidden(command: click.Context) -> None:
    async def work() -> None:
        try:
            await interrupted(signal.SIGTERM)
        finally:
            raise ValueError("what was sent is not confirmed")

    with handled(signal.SIGTERM, signal.SIG_DFL), pytest.raises(ValueError, match="not confirmed"):
        event_loop.run(work())
