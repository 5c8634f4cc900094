"""Brokers and a coordinator as processes of their own, to be killed and started again."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import fork_server
from tests.core.ports import free_ports
from tests.environment import without_settings
from tests.fork_server import ForkedProcess
from tests.json_output import command_of, read_json

MAGNETAR = (sys.executable, "-m", "magnetar_cli")
BROKER = "broker"
COORDINATOR = "coordinator"
BOTH = (BROKER, COORDINATOR)
# What is true with one broker is true with several: `make chaos BROKERS=3`.
BROKERS_VARIABLE = "TESTED_BROKERS"
# Whether shards move all the time: `make chaos OWNERS=1`.
OWNERS_VARIABLE = "TESTED_OWNERS"


class Servers:
    """All keep their ports and data directories over restarts. A kind means all servers of it.

    Args:
        settings: MAGNETAR_... variables for all servers.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        if counts is None:
            counts = {BROKER: int(os.environ.get(BROKERS_VARIABLE, "1")), COORDINATOR: 1}
        self._names = {
            kind: [f"{kind}-{number}" for number in range(count)] for kind, count in counts.items()
        }
        ports = iter(free_ports(sum(counts.values())))
        members = {
            kind: {name: f"127.0.0.1:{next(ports)}" for name in names}
            for kind, names in self._names.items()
        }
        self._ports = {
            name: address.rpartition(":")[2]
            for named in members.values()
            for name, address in named.items()
        }
        # Of the first of each kind.
        self.addresses = {kind: next(iter(named.values())) for kind, named in members.items()}
        self.environ = without_settings()
        for kind, named in members.items():
            listed = ",".join(f"{name}={address}" for name, address in named.items())
            self.environ[f"MAGNETAR_{kind.upper()}S"] = listed
        self.environ.update(settings or {})
        self._processes: dict[str, ForkedProcess] = {}
        self._metrics: dict[str, str] = {}

    @property
    def address(self) -> str:
        return self.addresses[BROKER]

    @contextmanager
    def running(self) -> Iterator[Servers]:
        """Start both, and end what still runs afterwards, whatever happened."""
        self.start()
        try:
            yield self
        finally:
            self.end()

    def start(self, *kinds: str) -> None:
        """Start those named, or both; returns when they are ready.

        If one cannot start, everything ends: whoever asked for it has nothing yet that it could
        stop.
        """
        try:
            self._start(kinds or BOTH)
        except BaseException:
            self.end()
            raise

    def _start(self, kinds: tuple[str, ...]) -> None:
        for kind in kinds:
            for number, name in enumerate(self._names[kind]):
                self._begin(kind, number, name)
        for kind in kinds:
            for name in self._names[kind]:
                self._await_ready(kind, name)

    def restart(self, kind: str, number: int) -> None:
        """Stop one in order, and start it again."""
        name = self._names[kind][number]
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, self.log(kind)
        process.stdout.close()
        self._begin(kind, number, name)
        self._await_ready(kind, name)

    def _begin(self, kind: str, number: int, name: str) -> None:
        with self._log(kind).open("a") as log:
            self._processes[name] = ForkedProcess(
                *self._command(kind, number, name), stderr=log, environ=self.environ
            )

    def _await_ready(self, kind: str, name: str) -> None:
        stdout = self._processes[name].stdout
        line = stdout.readline()
        assert line.startswith("ready:"), f"{name}: {line!r}\n{self.log(kind)}"
        self._metrics[name] = line.split()[-1]

    def kill(self, *kinds: str) -> None:
        """SIGKILL those named, or both."""
        names = [name for kind in kinds or BOTH for name in self._names[kind]]
        for name in names:
            self._processes[name].kill()
        for name in names:
            process = self._processes.pop(name)
            process.wait()
            process.stdout.close()

    def stop(self) -> None:
        """Stop in order; complains about tracebacks in the logs."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        try:
            for name, process in self._processes.items():
                assert process.wait(20) == 0, self.log(name.partition("-")[0])
        finally:
            self.end()
        for kind in BOTH:
            if not self._log(kind).exists():
                continue
            assert "Traceback" not in self.log(kind), self.log(kind)

    def end(self) -> None:
        """SIGKILL whatever runs; nothing is complained about."""
        for process in self._processes.values():
            process.kill()
            process.wait()
            process.stdout.close()

    def log(self, kind: str) -> str:
        return self._log(kind).read_text()

    def pid(self, kind: str) -> int:
        """Of the first of a kind."""
        return self._processes[self._names[kind][0]].pid

    def let_go(self, kind: str) -> ForkedProcess:
        """Hand over the first of a kind: whoever calls this ends it."""
        return self._processes.pop(self._names[kind][0])

    def peak_memory_bytes(self) -> int:
        """The most that all ever had resident, together."""
        return sum(peak_memory_bytes(process.pid) for process in self._processes.values())

    def metric(self, kind: str, name: str) -> float:
        """What a metric, named with its labels, is now, summed up; 0 when it is not there.

        The settings have to give a MAGNETAR_METRICS_PORT.
        """
        found = 0.0
        for server in self._names[kind]:
            with urllib.request.urlopen(self._metrics[server], timeout=5) as reply:
                for line in reply.read().decode().splitlines():
                    if line.startswith(f"{name} "):
                        found += float(line.split()[-1])
        return found

    def port_of(self, name: str) -> str:
        return self._ports[name]

    def _command(self, kind: str, number: int, name: str) -> list[str]:
        """The arguments that start a server."""
        directory = self._directory / (f"{kind}-{number}" if number else kind)
        return [kind, "--name", name, "--data-dir", str(directory)]

    def _log(self, kind: str) -> Path:
        return self._directory / f"{kind}.log"


def peak_memory_bytes(pid: int) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) << 10


class CommandLine:
    """`magnetar --broker ADDRESS ...`."""

    def __init__(self, servers: Servers) -> None:
        self._prefix = ("--broker", servers.address)

    def run(self, *arguments: str, status: int = 0) -> str:
        done = fork_server.run(*self._prefix, *arguments, timeout_s=30)
        out, error = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == status, (done.returncode, out, error)
        assert "Traceback" not in error
        return out if status in (0, 3) else error

    def json(self, *arguments: str, status: int = 0) -> Any:
        return read_json(command_of(arguments), self.run(*arguments, "--json", status=status))
