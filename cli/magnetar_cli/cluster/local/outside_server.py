"""A server that is not Magnetar's, as a child process: etcd, or an object server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from magnetar_cli.cluster.local import tether
from magnetar_cli.log_end import end_of_log

STOP_S_MAX = 10.0
START_S_MAX = 60.0
# Between two questions whether it is ready.
ASK_S = 0.05


class DidNotStart(Exception):
    """A program did not become ready; the message has the end of its log."""


class OutsideServer:
    """The process of a program that dies with this process.

    Args:
        log: the process works in its directory.
        is_ready: asked until it says yes.
        may_be_killed: whether what it has written is kept when it is killed: then it is not asked
            to end in order.
        variables: of its environment, beside those of this process.
        clean_up: removes what the program leaves outside of the directory.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        is_ready: Callable[[], Awaitable[bool]],
        *,
        may_be_killed: bool = False,
        clean_up: Callable[[], None] = lambda: None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._is_ready = is_ready
        self._stop_s_max = 0.0 if may_be_killed else STOP_S_MAX
        self._clean_up = clean_up
        self._variables = variables or {}
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process, and wait until it is ready.

        Raises:
            DidNotStart: it ended, or was not ready in time.
        """
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, tether.__file__, str(os.getpid())),
                *self._command,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env={**os.environ, **self._variables},
                # Ctrl-C is for this process, which stops the others before those they need.
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(START_S_MAX):
                while not await self._is_ready():
                    if self._process.returncode is not None:
                        raise self._failure(f"ended with status {self._process.returncode}")
                    await asyncio.sleep(ASK_S)
        except TimeoutError:
            raise self._failure(f"was not ready within {START_S_MAX:.0f} s") from None

    async def wait(self) -> int:
        """Wait until the process ends; returns its status."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it does not end in time."""
        process = self._process
        try:
            if process is not None and process.returncode is None:
                # A stopped process (SIGSTOP) does not receive SIGTERM until it continues.
                process.send_signal(signal.SIGCONT)
                process.terminate()
                async with asyncio.timeout(self._stop_s_max):
                    await process.wait()
        except TimeoutError:
            pass
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
            self._clean_up()

    def _failure(self, what: str) -> DidNotStart:
        return DidNotStart(f"{self.name} {what}; the end of {self.log}:\n{end_of_log(self.log)}")
