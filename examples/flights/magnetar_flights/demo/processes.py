"""The processes of workers, and how processes are ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import click

from magnetar_cli.log_end import end_of_log
from magnetar_flights.demo.journal import Journal
from magnetar_flights.demo.worker import Settings

WORKER = (sys.executable, "-m", "magnetar_flights.demo.worker")
STOP_S_MAX = 30.0


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Crew:
    """The workers: starts them, reads their reports, and replaces a worker that dies."""

    def __init__(self, settings: Settings, journal: Journal, log: Path) -> None:
        self._settings = settings
        self._journal = journal
        self._log = log
        self._running: dict[int, Process] = {}
        self._listening: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return sorted(self._running)

    async def add(self) -> int:
        """Start a worker and return its process id at once."""
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *WORKER,
                *self._settings.arguments(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._running[process.pid] = process
        listening = asyncio.create_task(self._listen(process))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return process.pid

    async def kill(self, pid: int) -> None:
        """Kill a worker by SIGKILL, and read what it has reported until then."""
        process = self._running.pop(pid)
        process.kill()
        await process.wait()

    def check(self) -> None:
        """Check that the workers run.

        Raises:
            click.ClickException: a worker ended by itself.
        """
        for pid, process in self._running.items():
            if process.returncode is not None:
                raise click.ClickException(
                    f"worker {pid} ended with status {process.returncode}:\n{end_of_log(self._log)}"
                )

    async def stop(self) -> None:
        """Let the workers finish their work, and read the rest of their reports."""
        processes, self._running = list(self._running.values()), {}
        await asyncio.gather(*(stop(process, _close_stdin) for process in processes))
        await asyncio.gather(*self._listening)

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):
            await self._journal.note(process.pid, line.decode())


def _close_stdin(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()


async def stop(process: Process, ask: Callable[[Process], None]) -> None:
    """Ask a process to end, and make it when it does not."""
    if process.returncode is not None:
        return
    try:
        send(process.pid, signal.SIGCONT)
        ask(process)
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
