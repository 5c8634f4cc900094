"""Keeps the two processes of a standalone server running.

The broker starts first, since the coordinator takes its incarnation from it, and stops last. The
standard input of each process is a pipe that ends with this process, however it dies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import click

from magnetar_cli.servers.ready import write_ready_file
from magnetar_core import membership
from magnetar_core.config import InvalidConfig, join_address
from magnetar_core.membership import CoordinatorMember, Member, Membership
from magnetar_core.parent_watch import STOP_S_MAX, watch_parent

log = logging.getLogger("magnetar_cli")

BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 10.0
# A server that ran for this long has recovered: its next death counts as the first.
STABLE_S = 60.0
PROGRAM = (sys.executable, "-m", "magnetar_cli")


class ChildFailed(Exception):
    """A server ended before it was ready; its log gives the reason."""


class Child:
    """A server process."""

    def __init__(
        self, kind: str, program: Sequence[str], arguments: list[str], environ: dict[str, str]
    ) -> None:
        self.kind = kind
        self.ready: dict[str, Any] = {}
        self._command = (*program, *arguments)
        self._environ = environ
        self._process: Process | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, and wait until it is ready.

        Raises:
            ChildFailed: the process ended.
        """
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            env=self._environ,
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            status = await process.wait()
            raise ChildFailed(f"the {self.kind} ended with status {status} before it was ready")
        self.ready = json.loads(line)

    async def wait(self) -> int:
        """Wait until the process ends."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        # One that stands still (SIGSTOP) would not hear of it.
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            log.error("the %s does not stop; it is killed", self.kind)
            process.kill()
            await process.wait()


class Supervisor:
    """Starts, watches and stops the broker and the coordinator.

    Args:
        supervised: whether the end of standard input means that the parent of this process is gone.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        host: str,
        broker_port: int,
        coordinator_port: int,
        broker_arguments: list[str],
        coordinator_arguments: list[str],
        restart: bool,
        ready_file: Path | None,
        supervised: bool = False,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        members = Membership(
            cluster_id=_cluster_id(data_dir),
            brokers=(Member(name="broker-0", address=_reached_at(host, broker_port)),),
            coordinators=(
                CoordinatorMember(
                    name="coordinator-0", address=_reached_at(host, coordinator_port), tcid=0
                ),
            ),
            stable_addresses=False,
        )
        environ = {**os.environ, **membership.to_environment(members)}
        environ.pop(membership.FILE_VARIABLE, None)
        self._broker = Child("broker", program, broker_arguments, environ)
        self._coordinator = Child("coordinator", program, coordinator_arguments, environ)
        self._restart = restart
        self._ready_file = ready_file
        self._supervised = supervised
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until a signal, or until the parent is gone.

        Raises:
            click.ClickException: a server could not start, or died and must not be restarted.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        if self._supervised:
            watch_parent(self._stop.set)
        work = loop.create_task(self._keep_running())
        stopping = loop.create_task(self._stop.wait())
        try:
            await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        except ChildFailed as error:
            raise click.ClickException(f"{error}; the log above says why") from None
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.gather(work, stopping, return_exceptions=True)
            await self._coordinator.stop()
            await self._broker.stop()
            if self._ready_file is not None:
                self._ready_file.unlink(missing_ok=True)

    async def _keep_running(self) -> None:
        await self._broker.start()
        await self._coordinator.start()
        self._tell()
        print(
            f"ready: broker {self._broker.ready['address']}, "
            f"coordinator {self._coordinator.ready['address']}, "
            f"metrics {self._broker.ready['metrics']} {self._coordinator.ready['metrics']}",
            flush=True,
        )
        loop = asyncio.get_running_loop()
        watches = [
            loop.create_task(self._watch(child)) for child in (self._broker, self._coordinator)
        ]
        try:
            await asyncio.gather(*watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        delay_s = BACKOFF_S_MIN
        while True:
            started_s = loop.time()
            status = await child.wait()
            if not self._restart:
                raise ChildFailed(f"the {child.kind} died with status {status}")
            log.error("the %s died with status %d; it is started again", child.kind, status)
            if loop.time() - started_s > STABLE_S:
                delay_s = BACKOFF_S_MIN
            while True:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, BACKOFF_S_MAX)
                try:
                    await child.start()
                except ChildFailed as error:
                    log.error("%s; trying again in %.1f s", error, delay_s)
                else:
                    break
            self._tell()

    def _tell(self) -> None:
        if self._ready_file is None:
            return
        content = {
            "pid": os.getpid(),
            "broker": self._broker.ready,
            "coordinator": self._coordinator.ready,
        }
        write_ready_file(self._ready_file, content)


def _reached_at(host: str, port: int) -> str:
    """Where clients on this machine find a server that listens on a host."""
    return join_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def _cluster_id(data_dir: Path) -> str:
    """Made with the data directory, so that a client of another one is told apart.

    Raises:
        InvalidConfig: the directory cannot be written.
    """
    file = data_dir / "cluster-id"
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            part = file.with_name("cluster-id.part")
            part.write_text(f"standalone-{Random().getrandbits(64):016x}\n")
            part.replace(file)
        return file.read_text().strip()
    except OSError as error:
        raise InvalidConfig(
            f"the data directory {data_dir} cannot be used: {error.strerror}; choose another"
        ) from error
