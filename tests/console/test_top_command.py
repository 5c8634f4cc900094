"""`magnetar top` in a terminal, which it gives back, and where there is none."""

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
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from tests.environment import without_settings
from tests.waiting import PATIENCE_S

from magnetar_cli.commands import top as command
from magnetar_cli.program import cli
from magnetar_cli.servers import console_options

pytest.importorskip("textual", reason="Textual is not installed")

# Nothing listens there.
UNREACHABLE = "127.0.0.1:1"
OTHER_SCREEN, FIRST_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
# Sequences that choose colours.
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38;|48;)[\d;]*m")


class Terminal:
    """A terminal of 80 columns with the program in it.

    Attributes:
        output: all that the program has written.
    """

    def __init__(self, *arguments: str, **environ: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._slave = slave
        self._before = termios.tcgetattr(slave)
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "magnetar_cli", "--broker", UNREACHABLE, "top", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**without_settings(), "TERM": "xterm-256color", **environ},
        )

    def read(self) -> bool:
        """Read a piece of the output. Return whether any came in time."""
        if not select.select([self._master], [], [], PATIENCE_S)[0]:
            return False
        try:
            found = os.read(self._master, 65_536)
        except OSError:
            return False  # The program has closed it.
        self.output += found
        return bool(found)

    def await_text(self, text: bytes) -> None:
        """Read until the program has written this."""
        while text not in self.output:
            assert self.read(), self.output

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def end(self) -> int:
        """Read to the end, and return the exit status."""
        os.set_blocking(self._master, False)
        while self.process.poll() is None:
            if select.select([self._master], [], [], 0.1)[0]:
                self.read()
        while select.select([self._master], [], [], 0)[0] and self.read():
            pass
        # As a shell would find it.
        assert termios.tcgetattr(self._slave) == self._before
        return self.process.returncode

    def close(self) -> None:
        """Give up the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def terminal(*arguments: str, **environ: str) -> Iterator[Terminal]:
    made = Terminal(*arguments, **environ)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_it_gives_the_terminal_back(keys: bytes) -> None:
    with terminal() as one:
        one.await_text(b"Transactions")
        assert OTHER_SCREEN in one.output
        one.press(keys)
        assert one.end() == 0, one.output
        assert one.output.rindex(FIRST_SCREEN) > one.output.rindex(b"Transactions")
        assert SHOW_CURSOR in one.output
        assert b"Traceback" not in one.output


def test_a_signal_ends_it_in_order() -> None:
    with terminal() as one:
        one.await_text(b"Transactions")
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 143, one.output
        assert FIRST_SCREEN in one.output
        assert b"Traceback" not in one.output


def test_servers_that_are_away_are_no_reason_to_end() -> None:
    with terminal() as one:
        one.await_text(b"nothing seen yet")
        one.await_text(UNREACHABLE.encode())
        one.press(b"q")
        assert one.end() == 0


def test_without_colours_there_are_none() -> None:
    with terminal() as coloured:
        coloured.await_text(b"away")
        coloured.press(b"q")
        coloured.end()
        assert COLOUR.search(coloured.output)
    with terminal(NO_COLOR="1") as plain:
        plain.await_text(b"away")
        plain.press(b"q")
        assert plain.end() == 0
        assert not COLOUR.search(plain.output)


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_terminal_that_cannot_draw_is_refused_with_what_it_can_do(name: str) -> None:
    with terminal(TERM=name) as one:
        assert one.end() == 2
        text = b" ".join(one.output.split())
        assert b"magnetar transactions list --watch" in text
        assert OTHER_SCREEN not in one.output


def test_in_a_pipe_it_names_the_command_for_pipes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magnetar_cli", "top"],
        capture_output=True,
        text=True,
        env=without_settings(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "magnetar transactions list" in done.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_options, "find_spec", lambda name: None)
    monkeypatch.setattr(command, "require_terminal", lambda: None)
    done = CliRunner().invoke(cli, ["top"])
    assert done.exit_code == 1
    assert "no module textual" in done.output
    assert "pip install 'magnetar[console]'" in done.output


def test_it_does_not_ask_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "require_terminal", lambda: None)
    done = CliRunner().invoke(cli, ["top", "--interval", "10ms"])
    assert done.exit_code == 2
    assert "at least 200ms" in done.output
