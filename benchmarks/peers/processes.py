"""Processes that are gone when their block ends, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

POLL_S = 0.05
TERMINATE_WITHIN_S = 20.0


class NotRunning(Exception):
    """A server ended, or was not ready in time; the end of its log is in the message."""


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Process:
    """A server in a session of its own, so that Ctrl-C reaches it in the order that we choose."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition.

        Raises:
            NotRunning: the process ended before, or the time is over.
        """
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            self.check()
            if time.monotonic() > deadline_s:
                raise NotRunning(f"not ready after {timeout_s:.0f} s:\n{self._log_end()}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise unless it runs.

        Raises:
            NotRunning: the process has ended.
        """
        status = self._popen.poll()
        if status is not None:
            raise NotRunning(f"ended with status {status}:\n{self._log_end()}")

    def status(self) -> int:
        """Wait for its end, and return its status."""
        return self._popen.wait()

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        signal_session(self._popen, signal.SIGKILL)
        self._popen.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not end in time."""
        if self._popen.poll() is None:
            signal_session(self._popen, signal.SIGTERM)
            try:
                self._popen.wait(TERMINATE_WITHIN_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                self.kill()

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Process]:
    """Run a process for the time of the block."""
    process = Process(command, log)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that everything is removed."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, also if its parent has not asked yet how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def listens(port: int) -> bool:
    """Whether something takes connections at this port of loopback."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def signal_session(popen: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Send a signal to a process and its children, which share its session."""
    try:
        os.killpg(popen.pid, number)
    except ProcessLookupError:
        pass
