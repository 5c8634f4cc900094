"""Follow a page: run its commands and programs in one directory, in the order of the page.

All commands of a page share a shell, as in a terminal. A block that starts servers is a terminal of
its own: they get free ports, and take the place of earlier ones on the same data directory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.environment import own_environment
from tests.pages.blocks import ROOT, Block, commands
from tests.pages.comparison import alike
from tests.waiting import wait_until

STANDALONE = "magnetar standalone --data-dir ./data"
_SERVERS = re.compile(r"^(?:\w+=\S+ )*(?:\.venv/bin/)?magnetar (standalone|cluster up)\b")
BROKER, COORDINATOR = "127.0.0.1:6650", "127.0.0.1:6651"
# They change nothing, and what they show may take a moment.
_REPEATED = re.compile(r"magnetar (cluster (members|shards)|transactions list)|sort |wc ")
_DONE = "end of the block:"
PROGRAMS = Path(sys.executable).parent
BLOCK_S_MAX = 900
START_S_MAX = 120
PATIENCE_S = 90


def search_path(programs: Path) -> str:
    return f"{programs}:{os.environ['PATH']}"


class Shell:
    """A shell, in which jobs and variables stay from block to block."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self._block = directory / "block.sh"
        self._errors = directory / "shell.err"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                ["/bin/bash"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=directory,
                env=environ,
                start_new_session=True,
            )
        self.run("set -E -o pipefail; trap 'failed=\"${failed:-$BASH_COMMAND}\"' ERR")

    def run(self, text: str) -> tuple[list[str], str]:
        """Run commands. Returns the lines that they print, and the last command that failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # From a file: a program that reads standard input must not get the next commands.
        self._block.write_text(f"{text}\n")
        self._process.stdin.write(
            f"failed=; . '{self._block}' < /dev/null\n"
            f"echo; echo '{_DONE}' \"${{failed//$'\\n'/ }}\"\n"
        )
        self._process.stdin.flush()
        timer = threading.Timer(BLOCK_S_MAX, self._kill_all)
        timer.start()
        lines: list[str] = []
        try:
            for line in self._process.stdout:
                if line.startswith(_DONE):
                    # Before that line there is an empty one.
                    return lines[: -1 if lines[-1] == "" else None], line[len(_DONE) :].strip()
                lines.append(line.rstrip())
        finally:
            timer.cancel()
        raise AssertionError(f"the shell ended in {text}\n{lines}\n{self.errors()}")

    def errors(self) -> str:
        return self._errors.read_text()[-4_000:]

    def close(self) -> None:
        try:
            self.run("kill $(jobs -p); wait")
        finally:
            self._kill_all()
            self._process.communicate()

    def _kill_all(self) -> None:
        """Kill the shell and its jobs."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Following:
    """A directory with a shell, and the servers that the page has started.

    Args:
        programs: the folder of `magnetar` and `python`.
    """

    def __init__(self, directory: Path, programs: Path) -> None:
        temporary = directory / "tmp"
        temporary.mkdir()
        # What a checkout has, for pages that name it.
        (directory / ".venv").symlink_to(programs.parent)
        (directory / "examples").symlink_to(ROOT / "examples")
        self._directory = directory
        self._shell = Shell(
            directory,
            own_environment(temporary) | {"PATH": search_path(programs), "SHELL": "/bin/bash"},
        )
        self._addresses: dict[str, str] = {}
        self._serving = False

    def servers(self, command: str, shown: list[str]) -> None:
        """Start servers as a page does, and stop those that it has started before.

        Args:
            shown: the table of servers that the page shows, if any.
        """
        self.stop_servers()
        ready = self._directory / "ready.json"
        ready.unlink(missing_ok=True)
        command = re.sub(r"\s+#.*", "", command.strip())
        options = f"--port 0 --ready-file {ready}"
        if "cluster up" in command:
            # Longer than users choose, for busy machines; the shards still move.
            options += " --lease-ms 5000"
        self._run(f"{command} {options} > servers.out 2>&1 & server=$!")
        self._serving = True
        wait_until(lambda: ready.exists() or not self._is_alive(), START_S_MAX)
        assert ready.exists(), (command, (self._directory / "servers.out").read_text())
        self._addresses = _addresses(json.loads(ready.read_text()), shown)
        if BROKER in self._addresses:
            self._run(f"export MAGNETAR_BROKER={self._addresses[BROKER]}")

    def _is_alive(self) -> bool:
        return self._shell.run("kill -0 $server")[1] == ""

    def stop_servers(self) -> None:
        if self._serving:
            self._serving = False
            self._shell.run("kill $server; wait $server")

    def run(self, block: Block, *, compare: bool) -> None:
        """Run a block.

        Args:
            compare: compare what is printed with what the page shows.
        """
        text = self._replaced(block.text)
        servers = starts_servers(block)
        if block.file is not None:
            (self._directory / block.file).write_text(text)
        elif servers is not None:
            self.servers(*servers)
        elif block.language == "python":
            self.program(text, str(block))
        elif block.language == "console":
            for command, wanted in commands(Block(block.page, block.line, "console", text)):
                self._command(block, command, wanted, compare=compare)
        else:
            self._run(text, str(block))

    def program(self, text: str, name: str) -> None:
        program = self._directory / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}.py"
        program.write_text(self._replaced(text))
        self._run(f"python {program.name}", name)

    def _command(self, block: Block, command: str, shown: list[str], *, compare: bool) -> None:
        # A job stays one of this shell.
        both = command if command.endswith("&") else f"{{ {command}\n}} 2>&1"
        found, failed = self._shell.run(both)
        shows_error = bool(shown) and shown[0].lower().startswith("error")
        assert bool(failed) == shows_error, (str(block), command, found)
        if not (compare and shown):
            return
        if not alike(found, shown) and _REPEATED.match(command):
            wait_until(lambda: alike(self._shell.run(both)[0], shown), PATIENCE_S)
            return
        assert alike(found, shown), (str(block), command, found, shown)

    def _run(self, text: str, name: str = "") -> None:
        found, failed = self._shell.run(text)
        assert not failed, (name, failed, found[-20:], self._shell.errors())

    def _replaced(self, text: str) -> str:
        """Replace the addresses and processes of the page's servers by those that there are."""
        for shown, found in self._addresses.items():
            text = re.sub(rf"(?<![\w.]){re.escape(shown)}\b", found, text)
        return text

    def close(self) -> None:
        self.stop_servers()
        self._shell.close()


def starts_servers(block: Block) -> tuple[str, list[str]] | None:
    """Return the command of a block that starts servers, and the lines that it shows."""
    if block.language not in ("sh", "console"):
        return None
    ((command, shown), *others) = (
        commands(block) if block.language == "console" else [(block.text, [])]
    )
    if not _SERVERS.match(command):
        return None
    assert not others, f"{block}: servers have a terminal, and so a block, of their own"
    assert command.count("\n") <= 1, f"{block}: servers have a block of their own"
    return command, shown


def _addresses(ready: dict[str, Any], shown: list[str]) -> dict[str, str]:
    """Return the addresses and process ids that the page shows, with the real ones."""
    if "broker" in ready:
        return {
            BROKER: ready["broker"]["address"],
            COORDINATOR: ready["coordinator"]["address"],
        }
    rows = {line.split()[0]: line.split() for line in shown if "127.0.0.1:" in line}
    found: dict[str, str] = {}
    for one in ready["servers"]:
        if one["name"] in rows:
            process, address = rows[one["name"]][1:3]
            found |= {process: str(one["pid"]), address: one["address"]}
    return found


@contextmanager
def following(directory: Path, programs: Path = PROGRAMS) -> Iterator[Following]:
    found = Following(directory, programs)
    try:
        yield found
    finally:
        found.close()
