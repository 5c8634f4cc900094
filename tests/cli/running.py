"""A real `magnetar standalone`, and commands in real pipes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests import fork_server
from tests.environment import without_settings
from tests.json_output import command_of, read_json
from tests.waiting import wait_until

MAGNETAR = (sys.executable, "-m", "magnetar_cli")


@dataclass
class Standalone:
    process: subprocess.Popen[str]
    ready_file: Path
    environ: dict[str, str]

    def ready(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def run(
        self, *arguments: str, stdin: bytes = b"", status: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        done = fork_server.run(*arguments, stdin=stdin, environ=self.environ, timeout_s=20)
        assert done.returncode == status, done.stderr.decode()
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def json(self, *arguments: str) -> Any:
        return read_json(command_of(arguments), self.run(*arguments, "--json").stdout)

    def lines(self, *arguments: str) -> list[str]:
        return self.run(*arguments).stdout.decode().splitlines()


def stop(processes: list[psutil.Process]) -> None:
    """Stop processes where they stand."""
    for process in processes:
        process.suspend()
    wait_until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes))


def wait_until_gone(processes: list[psutil.Process], seconds: float = 30) -> None:
    """Wait for processes that are nobody's children any more."""
    wait_until(lambda: not any(_is_running(process) for process in processes), seconds)


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running_standalone(directory: Path, *arguments: str) -> Iterator[Standalone]:
    ready_file = directory / "ready.json"
    environ = without_settings()
    log = (directory / "log").open("w")
    process = subprocess.Popen(
        [
            *MAGNETAR,
            *("standalone", "--data-dir", str(directory / "data"), "--port", "0"),
            *("--ready-file", str(ready_file)),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environ,
    )
    try:
        yield _ready(process, ready_file, environ, directory / "log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, (directory / "log").read_text()
        assert not ready_file.exists()
    finally:
        process.kill()
        process.wait()


def _ready(
    process: subprocess.Popen[str], ready_file: Path, environ: dict[str, str], log: Path
) -> Standalone:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.match(r"ready: brokers? 127\.0\.0\.1:", line), log.read_text()
    address = json.loads(ready_file.read_text())["broker"]["address"]
    environ["MAGNETAR_BROKER"] = address
    return Standalone(process, ready_file, environ)
