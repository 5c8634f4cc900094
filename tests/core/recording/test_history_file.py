"""The file of a life: what is in it when, and that nothing about it harms the server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.core.recording.events import some_events
from tests.virtual_time import run, time_passes
from tests.waiting import turns

from magnetar_core.config import InvalidConfig
from magnetar_core.history.event_text import from_json
from magnetar_core.history.events import Durable, Event, Finished, Sealed, Server
from magnetar_core.ids import TxnID
from magnetar_core.recording.config import HISTORY_BYTES_MIN, HistoryConfig
from magnetar_core.recording.history_file import HistoryFile, open_history
from magnetar_core.recording.lines import BEGUN, CLOSED, STOPPED, Line, life_of_file, parse_line
from magnetar_core.recording.metrics import HistoryMetrics

SERVER = Server("broker", 2)
FINISHED = Finished(TxnID.of(0, 1, 7), True)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop."""

    @wraps(test)
    def run_it(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run_it


class Begun:
    """A history in a directory, and what its metrics say."""

    def __init__(self, directory: Path, *, bytes_max: int = 1 << 30, wall_ms: int = 5_000) -> None:
        self.directory = directory
        self.registry = CollectorRegistry()
        self.wall_ms = wall_ms
        config = HistoryConfig(history_dir=str(directory), history_bytes_max=bytes_max)
        self.metrics = HistoryMetrics(self.registry)
        self.file = open_history(config, SERVER, "broker-c", self.now, self.metrics)

    def now(self) -> int:
        return self.wall_ms

    def note(self, *events: Event) -> None:
        assert self.file is not None
        for event in events:
            self.file.history.note(event)

    @property
    def opened(self) -> HistoryFile:
        assert self.file is not None
        return self.file

    @property
    def stopped(self) -> float | None:
        return self.registry.get_sample_value("magnetar_history_stopped")


def files_in(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def lines_of(directory: Path) -> list[Line]:
    path = files_in(directory)[-1]
    return [parse_line(text) for text in path.read_bytes().splitlines(keepends=True)]


def names(directory: Path) -> list[str]:
    return [line.event for line in lines_of(directory)]


@in_a_loop
async def test_without_a_directory_there_is_no_history() -> None:
    metrics = HistoryMetrics(CollectorRegistry())
    assert open_history(HistoryConfig(), SERVER, "b", lambda: 0, metrics) is None


@in_a_loop
async def test_a_life_has_its_first_line_its_events_and_its_last_line(tmp_path: Path) -> None:
    begun = Begun(tmp_path / "new" / "directory")
    events = list(some_events(Random(3), 300))
    begun.note(*events)
    begun.opened.close()
    begun.opened.close()
    first, *others, last = lines_of(begun.directory)
    assert first.event == BEGUN
    assert first.members["name"] == "broker-c"
    assert [from_json(line.members) for line in others] == events
    assert last.event == CLOSED
    assert [line.number for line in (first, *others, last)] == list(range(len(events) + 2))
    assert begun.registry.get_sample_value("magnetar_history_lines_total") == len(events) + 2


def test_a_group_is_in_the_file_before_it_is_written(tmp_path: Path) -> None:
    """A killed process then leaves the lines of all changes that its store may have."""

    async def scenario() -> None:
        begun = Begun(tmp_path)
        begun.note(FINISHED)
        assert names(tmp_path) == [BEGUN]
        begun.note(Sealed(1))
        assert names(tmp_path) == [BEGUN, "Finished", "Sealed"]
        begun.note(Durable(1))
        await time_passes(0.09)
        assert names(tmp_path)[-1] == "Sealed"
        await time_passes(0.02)
        assert names(tmp_path)[-1] == "Durable", "what no group follows is written soon"
        assert begun.registry.get_sample_value("magnetar_history_lines_total") == 4

    run(scenario())


@in_a_loop
async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.note(*[FINISHED] * 10_500)
    assert len(names(tmp_path)) == 1 + 10_000


@in_a_loop
async def test_times_rise_whatever_the_clock_does(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    for wall_ms in (5_000, 5_001, 3_000, 0, 90_000):
        begun.wall_ms = wall_ms
        begun.note(FINISHED, Sealed(1))
    times = [line.time for line in lines_of(tmp_path)]
    assert times == sorted(times)
    assert times[-1] >> 16 == 90_000


@in_a_loop
async def test_lives_are_numbered_upwards_although_the_clock_went_back(tmp_path: Path) -> None:
    for wall_ms in (9_000, 4_000, 20_000):
        Begun(tmp_path, wall_ms=wall_ms).opened.close()
    lives = [life_of_file(path.name) for path in files_in(tmp_path)]
    assert [life.number for life in lives if life is not None] == [9_000, 9_001, 20_000]


@in_a_loop
async def test_a_life_that_was_abandoned_has_no_last_line(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.note(FINISHED)
    begun.opened.abandon()
    begun.note(FINISHED)
    assert names(tmp_path) == [BEGUN, "Finished"]


@in_a_loop
async def test_at_the_limit_the_history_says_that_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun = Begun(tmp_path, bytes_max=HISTORY_BYTES_MIN)
    while not begun.stopped:
        begun.note(*[FINISHED] * 50, Sealed(1))
    begun.note(FINISHED, Sealed(2))
    begun.opened.close()
    lines = lines_of(tmp_path)
    assert lines[-1].event == STOPPED
    assert [line.number for line in lines] == list(range(len(lines)))
    (path,) = files_in(tmp_path)
    assert HISTORY_BYTES_MIN - (32 << 10) < path.stat().st_size <= HISTORY_BYTES_MIN
    assert "history_bytes_max is reached" in caplog.text

    # Files of earlier lives count, too.
    caplog.clear()
    later = Begun(tmp_path, bytes_max=HISTORY_BYTES_MIN)
    assert later.file is None
    assert later.stopped == 1
    assert "history_bytes_max is 1,048,576" in caplog.text
    assert len(files_in(tmp_path)) == 1


@in_a_loop
async def test_a_directory_that_cannot_be_made_does_not_keep_the_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    begun = Begun(tmp_path / "file" / "directory")
    assert begun.file is None
    assert begun.stopped == 1
    assert "The server starts without it" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@in_a_loop
async def test_a_full_disk_ends_the_history_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun = Begun(tmp_path)
    file = begun.opened
    # Its descriptor becomes one of a disk that is full.
    assert file._file is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file)
    os.close(full)
    begun.note(FINISHED, Sealed(1))
    assert begun.stopped == 1
    assert "The server goes on without it" in caplog.text
    begun.note(FINISHED, Sealed(2))
    await turns()
    file.close()
    assert names(tmp_path) == [BEGUN]


@in_a_loop
async def test_a_mistake_in_an_event_ends_the_history_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun = Begun(tmp_path)
    with caplog.at_level(logging.ERROR):
        begun.note("no event", Sealed(1))  # type: ignore[arg-type]
    assert begun.stopped == 1
    assert names(tmp_path) == [BEGUN]


@in_a_loop
async def test_only_the_owner_may_read_a_history(tmp_path: Path) -> None:
    Begun(tmp_path / "history").opened.close()
    (path,) = files_in(tmp_path / "history")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_limit_that_is_too_low_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="history_bytes_max must be at least"):
        HistoryConfig(history_bytes_max=HISTORY_BYTES_MIN - 1)
