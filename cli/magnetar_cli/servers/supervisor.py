"""Keeps the processes of a standalone cluster running.

The first broker starts first, since it keeps the metadata that all others ask for; then the other
brokers, then the coordinators. They stop in the opposite order. The standard input of each process
is a pipe that ends with this process, however it dies.
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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from magnetar_cli.log_end import end_of_log
from magnetar_cli.servers.interruption import unless_stopped
from magnetar_cli.servers.ready import write_ready_file
from magnetar_cli.standard_streams import output_not_needed
from magnetar_core.membership import membership
from magnetar_core.membership.membership import Membership
from magnetar_core.process.parent_watch import STOP_S_MAX, watch_parent

log = logging.getLogger("magnetar_cli")

ETCD_VARIABLE = "MAGNETAR_ETCD"
BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 10.0
# A server that ran for this long has recovered: its next death counts as the first.
STABLE_S = 60.0
PROGRAM = (sys.executable, "-m", "magnetar_cli")


class ChildFailed(Exception):
    """A server ended; the message has the end of its log if it has one of its own."""


class Child:
    """A server process.

    Args:
        label: what the log calls it.
        log: the file that its log goes to; None: where the one of this process goes.
    """

    def __init__(
        self,
        label: str,
        program: Sequence[str],
        arguments: list[str],
        environ: dict[str, str],
        log: Path | None = None,
    ) -> None:
        self.label = label
        self.ready: dict[str, Any] = {}
        self.was_ready = asyncio.Event()
        self._command = (*program, *arguments)
        self._environ = environ
        self._log = log
        self._process: Process | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, and wait until it is ready.

        Raises:
            ChildFailed: the process ended.
        """
        with self._log.open("ab") if self._log is not None else nullcontext() as log_file:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log_file,
                env=self._environ,
            )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            status = await process.wait()
            what = f"{self.label} ended with status {status} before it was ready"
            if self._log is not None:
                what = f"{what}; the end of {self._log}:\n{end_of_log(self._log)}"
            raise ChildFailed(what)
        self.ready = json.loads(line)
        self.was_ready.set()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.returncode is None

    async def wait(self) -> int:
        """Wait until the process ends."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        # A stopped process (SIGSTOP) does not receive SIGTERM until it continues.
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            log.error("%s does not stop; it is killed", self.label)
            process.kill()
            await process.wait()


class Supervisor:
    """Starts, watches and stops brokers and coordinators.

    Args:
        members: brokers and coordinators, as they are told of each other.
        broker_arguments: a command line for each broker, in the order of the list.
        coordinator_arguments: likewise.
        console_arguments: the command line of a console; None: there is none.
        supervised: whether the end of standard input means that the parent of this process is gone.
    """

    def __init__(
        self,
        *,
        members: Membership,
        broker_arguments: list[list[str]],
        coordinator_arguments: list[list[str]],
        console_arguments: list[str] | None = None,
        restart: bool,
        ready_file: Path | None,
        supervised: bool = False,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        environ = {**os.environ, **membership.to_environment(members)}
        # These servers keep their shards, whatever cluster the commands of this shell are about.
        for variable in (membership.FILE_VARIABLE, ETCD_VARIABLE):
            environ.pop(variable, None)
        self._brokers = [
            Child(_label("broker", one.name, members.brokers), program, arguments, environ)
            for one, arguments in zip(members.brokers, broker_arguments, strict=True)
        ]
        self._coordinators = [
            Child(
                _label("coordinator", one.name, members.coordinators), program, arguments, environ
            )
            for one, arguments in zip(members.coordinators, coordinator_arguments, strict=True)
        ]
        self._consoles = (
            [Child("the console", program, console_arguments, environ)] if console_arguments else []
        )
        self._restart = restart
        self._ready_file = ready_file
        self._supervised = supervised
        self._stop = asyncio.Event()
        self._all_were_ready = False

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
        try:
            await unless_stopped(self._keep_running(), self._stop)
        except ChildFailed as error:
            raise click.ClickException(f"{error}; the log above says why") from None
        finally:
            for some in reversed(self._in_order()):
                await asyncio.gather(*(one.stop() for one in some))
            if self._ready_file is not None:
                self._ready_file.unlink(missing_ok=True)

    def _in_order(self) -> list[list[Child]]:
        """Servers that start together, in the order of starts."""
        return [self._brokers[:1], self._brokers[1:], self._coordinators, self._consoles]

    async def _keep_running(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            for some in self._in_order():
                tasks += [asyncio.ensure_future(self._run(one)) for one in some]
                await _wait_until_ready(some, tasks)
            self._all_were_ready = True
            self._tell()
            with output_not_needed():
                print(self._ready_line())
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, child: Child) -> None:
        await child.start()
        await self._watch(child)

    def _ready_line(self) -> str:
        metrics = [one.ready["metrics"] for one in (*self._brokers, *self._coordinators)]
        return (
            f"ready: {_addresses('broker', self._brokers)},"
            f" {_addresses('coordinator', self._coordinators)}, metrics {' '.join(metrics)}"
            f"{_kafka(self._brokers[0])}"
            + "".join(f", console {one.ready['address']}" for one in self._consoles)
        )

    async def _watch(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        delay_s = BACKOFF_S_MIN
        while True:
            started_s = loop.time()
            status = await child.wait()
            if not self._restart:
                raise ChildFailed(f"{child.label} died with status {status}")
            log.error("%s died with status %d; it is started again", child.label, status)
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
        if self._ready_file is None or not self._all_were_ready:
            return
        content: dict[str, Any] = {
            "pid": os.getpid(),
            # The first of each: most programs need no other.
            "broker": self._brokers[0].ready,
            "coordinator": self._coordinators[0].ready,
            "brokers": [broker.ready for broker in self._brokers],
            "coordinators": [coordinator.ready for coordinator in self._coordinators],
        }
        if self._consoles:
            content["console"] = self._consoles[0].ready
        write_ready_file(self._ready_file, content)


def _label(kind: str, name: str, members: Sequence[object]) -> str:
    return f"the {kind}" if len(members) == 1 else name


def _addresses(kind: str, servers: list[Child]) -> str:
    addresses = " ".join(server.ready["address"] for server in servers)
    return f"{kind}{'s' if len(servers) > 1 else ''} {addresses}"


def _kafka(broker: Child) -> str:
    """Say where Kafka's clients are answered, or why they are not."""
    if broker.ready.get("kafka"):
        return f", Kafka's clients {broker.ready['kafka']}"
    reason = broker.ready.get("no_kafka")
    return f", no port for Kafka's clients ({reason})" if reason else ""


async def _wait_until_ready(servers: list[Child], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until servers are ready.

    Args:
        tasks: that keep servers running; none ends by itself.
    Raises:
        ChildFailed: a task has failed.
    """

    async def all_ready() -> None:
        for server in servers:
            await server.was_ready.wait()

    ready = asyncio.ensure_future(all_ready())
    try:
        await asyncio.wait((ready, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task
    finally:
        ready.cancel()
