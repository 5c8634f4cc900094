"""`--watch`: frames on a terminal, plain repeats without one, and a clean end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import Standalone, running_standalone

COLUMNS, LINES = 80, 12
LEAVE_SCREEN = b"\x1b[?1049l"
ENTER_SCREEN = b"\x1b[?1049h"
SHOW_CURSOR = b"\x1b[?25h"
_CONTROL = re.compile(rb"\x1b\[[?\d;]*[a-zA-Z]")
HEAD = re.compile(rb"\d\d:\d\d:\d\d, each second; Ctrl-C ends")


class OnTerminal:
    """A command on a terminal of its own, with all that it has written there."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.written = b""
        self._descriptor = descriptor

    def read_until(self, found: Callable[[bytes], bool], seconds: float = 20) -> None:
        """Read until the text so far is what is waited for."""
        while not found(self.written):
            ready, _, _ = select.select([self._descriptor], [], [], seconds)
            assert ready, self.written
            self.written += os.read(self._descriptor, 1 << 16)

    def press_ctrl_c(self) -> None:
        os.write(self._descriptor, b"\x03")

    def end(self) -> int:
        """Read to the end, and return the exit status."""
        try:
            while piece := os.read(self._descriptor, 1 << 16):
                self.written += piece
        except OSError:
            pass  # Linux says EIO when the last process has closed the terminal.
        return self.process.wait(20)


@contextmanager
def on_terminal(running: Standalone, *arguments: str, **environ: str) -> Iterator[OnTerminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    without_size = {
        name: value for name, value in running.environ.items() if name not in ("COLUMNS", "LINES")
    }

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "magnetar_cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**without_size, "TERM": "xterm", **environ},
        preexec_fn=own_terminal,
    )
    os.close(theirs)
    try:
        yield OnTerminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with running_standalone(tmp_path_factory.mktemp("watching")) as servers:
        servers.run("topics", "create", "orders")
        for number in range(20):
            servers.run("topics", "create", f"a-topic-with-a-long-name-{number:02}" + "x" * 60)
        yield servers


def test_frames_replace_each_other_and_the_last_one_stays(running: Standalone) -> None:
    with on_terminal(running, "topics", "list", "--watch") as command:
        command.read_until(lambda text: len(HEAD.findall(text)) >= 2)
        command.press_ctrl_c()
        assert command.end() == 0
        during, left, after = command.written.partition(LEAVE_SCREEN)
        assert left
        assert during.count(ENTER_SCREEN) == 1
        assert SHOW_CURSOR in command.written
        # A frame has no more lines than the screen, none is wider, and the rest is counted. The
        # terminal shows ^C behind the last one.
        frame = _CONTROL.sub(b"", during.split(b"\x1b[H")[-2]).splitlines()
        assert len(frame) <= LINES
        assert all(len(line) <= COLUMNS for line in frame)
        assert any(b"more lines" in line for line in frame)
        assert b"orders" in after
        assert b"Traceback" not in command.written


def test_it_needs_no_colour(running: Standalone) -> None:
    with on_terminal(running, "topics", "describe", "orders", "--watch", NO_COLOR="1") as command:
        command.read_until(lambda text: HEAD.search(text) is not None)
        command.press_ctrl_c()
        assert command.end() == 0
        colours = re.compile(rb"\x1b\[(?:\d+;)*(?:3|4|9|10)[0-7]m")
        assert not colours.search(command.written)


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(running: Standalone) -> None:
    with on_terminal(running, "topics", "list", "--watch", TERM="dumb") as command:
        command.read_until(lambda text: text.count(b"PARTITIONS") >= 2)
        command.press_ctrl_c()
        assert command.end() == 0
        assert b"\x1b" not in command.written


def test_the_end_of_the_process_gives_the_terminal_back(running: Standalone) -> None:
    with on_terminal(running, "groups", "list", "--watch") as command:
        command.read_until(lambda text: HEAD.search(text) is not None)
        command.process.send_signal(signal.SIGTERM)
        assert command.end() == 128 + signal.SIGTERM
        assert LEAVE_SCREEN in command.written


@pytest.mark.parametrize(
    "arguments",
    ["topics list", "transactions list --all", "subscriptions list orders", "groups list --json"],
)
def test_in_a_pipe_it_prints_plainly(running: Standalone, arguments: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "magnetar_cli", *arguments.split(), "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=running.environ,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        again = iter(process.stdout.readline, b"")
        assert first in again
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(20) == 0
        assert b"\x1b" not in first + rest
        assert b"Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_servers_that_go_away_leave_the_last_frame(tmp_path: Path) -> None:
    with running_standalone(tmp_path) as servers:
        servers.run("topics", "create", "orders")
        with on_terminal(servers, "topics", "list", "--watch") as command:
            command.read_until(lambda text: HEAD.search(text) is not None)
            servers.process.terminate()
            command.read_until(lambda text: b"no answer, so this is older" in text)
            command.press_ctrl_c()
            assert command.end() == 0
            assert b"orders" in command.written.partition(LEAVE_SCREEN)[2]
