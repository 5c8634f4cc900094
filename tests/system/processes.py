"""A broker and a coordinator as processes of their own, to be killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.core.ports import free_ports

MAGNETAR = (sys.executable, "-m", "magnetar_cli")
BROKER = "broker"
COORDINATOR = "coordinator"
BOTH = (BROKER, COORDINATOR)


class Servers:
    """Both keep their ports and data directories over restarts.

    Args:
        settings: MAGNETAR_... variables for both servers.
    """

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        ports = dict(zip(BOTH, free_ports(len(BOTH)), strict=True))
        self.addresses = {kind: f"127.0.0.1:{port}" for kind, port in ports.items()}
        self.environ = {
            name: text for name, text in os.environ.items() if not name.startswith("MAGNETAR_")
        }
        self.environ["MAGNETAR_BROKERS"] = f"broker-0={self.addresses[BROKER]}"
        self.environ["MAGNETAR_COORDINATORS"] = f"coordinator-0={self.addresses[COORDINATOR]}"
        self.environ.update(settings or {})
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._metrics: dict[str, str] = {}

    @property
    def address(self) -> str:
        return self.addresses[BROKER]

    def start(self, *kinds: str) -> None:
        """Start those named, or both; returns when they are ready."""
        kinds = kinds or BOTH
        for kind in kinds:
            with self._log(kind).open("a") as log:
                self._processes[kind] = subprocess.Popen(
                    [
                        *(*MAGNETAR, kind, "--name", f"{kind}-0"),
                        *("--data-dir", str(self._directory / kind)),
                    ],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=self.environ,
                )
        for kind in kinds:
            stdout = self._processes[kind].stdout
            assert stdout is not None
            line = stdout.readline()
            assert line.startswith("ready:"), f"{kind}: {line!r}\n{self.log(kind)}"
            self._metrics[kind] = line.split()[-1]

    def kill(self, *kinds: str) -> None:
        """SIGKILL those named, or both."""
        kinds = kinds or BOTH
        for kind in kinds:
            self._processes[kind].kill()
        for kind in kinds:
            process = self._processes.pop(kind)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def stop(self) -> None:
        """Stop in order; complains about tracebacks in the logs."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        try:
            for kind, process in self._processes.items():
                assert process.wait(20) == 0, self.log(kind)
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
        for kind in BOTH:
            if not self._log(kind).exists():
                continue
            assert "Traceback" not in self.log(kind), self.log(kind)

    def log(self, kind: str) -> str:
        return self._log(kind).read_text()

    def pid(self, kind: str) -> int:
        return self._processes[kind].pid

    def peak_memory_bytes(self) -> int:
        """The most that both ever had resident, together."""
        return sum(peak_memory_bytes(process.pid) for process in self._processes.values())

    def metric(self, kind: str, name: str) -> float:
        """What a metric, named with its labels, is now; 0 when it is not there.

        The settings have to give a MAGNETAR_METRICS_PORT.
        """
        with urllib.request.urlopen(self._metrics[kind], timeout=5) as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[-1])
        return 0.0

    def _log(self, kind: str) -> Path:
        return self._directory / f"{kind}.log"


def peak_memory_bytes(pid: int) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) << 10


class CommandLine:
    """`magnetar --broker ADDRESS ...`."""

    def __init__(self, servers: Servers) -> None:
        self._prefix = [*MAGNETAR, "--broker", servers.address]

    def run(self, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [*self._prefix, *arguments], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout if status in (0, 3) else done.stderr

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", status=status))
