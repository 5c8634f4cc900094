"""Writes the history of a life of a server to a file.

Events wait in memory, and are written together when a group commit is sealed, or after a tenth of a
second. So the operating system has the line of a change before another server can know of it.
A killed process leaves the lines of all changes that its store may have, the last one perhaps torn,
and may lack those of its last answers, and that its last group was durable. Nothing is synced: a
machine that goes down may take more of the last lines with it.

Whatever goes wrong with the file ends the history, with a line in the log, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from magnetar_core.cuts.hybrid_clock import NO_STAMP, stamp_at
from magnetar_core.history.event_text import to_text
from magnetar_core.history.events import (
    Event,
    Life,
    Sealed,
    Server,
)
from magnetar_core.history.history import History
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.recording.lines import (
    BEGUN,
    CLOSED,
    STOPPED,
    VOCABULARY,
    LineDamaged,
    LineWriter,
    file_name,
    life_of_file,
    parse_line,
)
from magnetar_core.recording.metrics import HistoryMetrics
from magnetar_core.version import VERSION

log = logging.getLogger(__name__)

# Events that may wait, about 300 bytes each.
WAITING_MAX: Final = 1_000
# With less room than this, no file is begun.
FIRST_BYTES_MIN: Final = 64 << 10
# What is read of the end of the file before.
_TAIL_BYTES: Final = 64 << 10
# Room for the last line.
_LAST_LINE_BYTES: Final = 512
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# How long other events than those of a group commit wait.
WAITING_SECONDS: Final = 0.1


class Before(NamedTuple):
    """The life before: its number, and that of its last line, -1 if there is none."""

    life: int
    last_line: int


class HistoryFile:
    """The file of a life. It takes events until it is closed, or something is wrong with it.

    Args:
        wall_ms: the wall clock.
        bytes_max: the limit on its size.
    Attributes:
        history: takes the events of the life.
    """

    def __init__(
        self,
        path: Path,
        life: Life,
        wall_ms: Callable[[], int],
        metrics: HistoryMetrics,
        bytes_max: int,
    ) -> None:
        self.history = History(life, self._note)
        self._path = path
        self._lines = LineWriter(life)
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._bytes_max = bytes_max
        self._bytes = 0
        self._time = NO_STAMP
        self._waiting: list[Event] = []
        self._is_flush_due = False
        self._shown_count = 0
        self._file: int | None = None

    def open(self, name: str, before: Before | None = None) -> None:
        """Begin the file.

        Args:
            name: of the server.
            before: the life before this one, if its file is known.
        Raises:
            OSError: it cannot be written.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        first: dict[str, object] = {"event": BEGUN, "vocabulary": VOCABULARY, "name": name}
        first |= {"version": VERSION, "boot": _boot_id()}
        if before is not None:
            first |= {"life_before": before.life, "last_line_before": before.last_line}
        try:
            self._write([_members(first)])
        except OSError:
            self._close_file()
            raise

    def _note(self, life: Life, event: Event) -> None:
        """Take an event; a Sink."""
        if self._file is None:
            return
        waiting = self._waiting
        waiting.append(event)
        if type(event) is Sealed or len(waiting) >= WAITING_MAX:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_later(WAITING_SECONDS, self._flush_late)

    def flush(self) -> None:
        """Write the events that wait. It never raises."""
        waiting, self._waiting = self._waiting, []
        if waiting and self._file is not None:
            try:
                self._write([to_text(event) for event in waiting])
            except Exception as error:
                self._give_up(error)

    def _flush_late(self) -> None:
        self._is_flush_due = False
        self.flush()
        self._show()

    def _show(self) -> None:
        self._metrics.lines.inc(self._lines.count - self._shown_count)
        self._shown_count = self._lines.count

    def close(self) -> None:
        """Write the waiting events, and that this is the end. Repeating it is harmless."""
        self.flush()
        if self._file is not None:
            try:
                self._write([_members({"event": CLOSED})])
            except OSError as error:
                self._give_up(error)
        self._close_file()

    def abandon(self) -> None:
        """Write the waiting events, and not that the life has ended in order."""
        self.flush()
        self._close_file()

    def _write(self, events: list[str]) -> None:
        """Write lines, all of them or none.

        Raises:
            OSError: they cannot be written.
        """
        assert self._file is not None
        # The counter of the stamp has room for them: the clock goes on above it.
        time = self._time = max(self._time + 1, stamp_at(self._wall_ms()))
        content = b"".join([self._lines.line(time, event) for event in events])
        if self._bytes + len(content) > self._bytes_max - _LAST_LINE_BYTES:
            self._stop_at_limit(len(events))
            return
        self._put(content)

    def _put(self, content: bytes) -> None:
        assert self._file is not None
        try:
            written = os.write(self._file, content)
            if written < len(content):
                # The rest of a full disk; this one says what is wrong with it.
                os.write(self._file, content[written:])
        except OSError:
            os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(content)

    def _stop_at_limit(self, left_out: int) -> None:
        self._lines.count -= left_out
        self._put(self._lines.line(self._time, _members({"event": STOPPED, "reason": "limit"})))
        log.error(
            "the history %s ends: history_bytes_max is reached. Move files of earlier starts away,"
            " or raise it; the server goes on, and its next start begins a new file",
            self._path,
        )
        self._end()

    def _give_up(self, error: Exception) -> None:
        log.error(
            "the history %s ends: it cannot be written: %s. The server goes on without it",
            self._path,
            error,
            exc_info=None if isinstance(error, OSError) else error,
        )
        self._end()

    def _end(self) -> None:
        self._metrics.stopped.set(1)
        self._waiting.clear()
        self._close_file()

    def _close_file(self) -> None:
        self._show()
        if self._file is not None:
            os.close(self._file)
            self._file = None


def open_history(
    config: HistoryConfig,
    server: Server,
    name: str,
    wall_ms: Callable[[], int],
    metrics: HistoryMetrics,
    *,
    life_number: int | None = None,
) -> HistoryFile | None:
    """Begin the history of a life; None: settings ask for none, or it cannot be written.

    Args:
        name: of the server.
        wall_ms: the wall clock.
        life_number: higher than those of earlier lives; None: the time, if no file of the server
            has a higher one.
    """
    if not config.history_dir:
        return None
    directory = Path(config.history_dir)
    try:
        before, size = _earlier(directory, server)
        if size > config.history_bytes_max - FIRST_BYTES_MIN:
            raise OSError(
                f"files of {server} have {size:,} bytes, and history_bytes_max is"
                f" {config.history_bytes_max:,}: move some away, or raise it"
            )
        if life_number is None:
            life_number = wall_ms()
            if before is not None:
                life_number = max(life_number, before.life + 1)
        life = Life(server, life_number)
        file = HistoryFile(
            directory / file_name(life), life, wall_ms, metrics, config.history_bytes_max - size
        )
        file.open(name, before)
    except OSError as error:
        log.error("no history in %s: %s. The server starts without it", directory, error)
        metrics.stopped.set(1)
        return None
    return file


def _earlier(directory: Path, server: Server) -> tuple[Before | None, int]:
    """Return the last life of a server in a directory, and the size of all of its files.

    Raises:
        OSError: the directory cannot be read.
    """
    found: dict[int, Path] = {}
    if directory.exists():
        for path in directory.iterdir():
            life = life_of_file(path.name)
            if life is not None and life.server == server:
                found[life.number] = path
    if not found:
        return None, 0
    last = max(found)
    size = sum(path.stat().st_size for path in found.values())
    return Before(last, _last_number(found[last])), size


def _last_number(path: Path) -> int:
    """Return the number of the last whole line of a file; -1: none is near its end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _TAIL_BYTES))
        for text in reversed(file.read().splitlines(keepends=True)):
            try:
                return parse_line(text).number
            except LineDamaged:
                continue
    return -1


def _members(values: dict[str, object]) -> str:
    return json.dumps(values, separators=(",", ":"))[1:-1]


def _boot_id() -> str:
    """Return an id of the present run of the machine's system; empty: it is not known."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
