"""`magnetar standalone` on a fresh data directory."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from tests.certificates import Authority

import magnetar
from magnetar import Client, TlsFiles

POLL_S = 0.02
# The kind of a process's clock in its number: linux/posix-timers.h, and clock_getcpuclockid(3).
CPUCLOCK_SCHED = 2
LINUX = platform.system() == "Linux"


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, also of its threads that have ended."""
    if LINUX:
        # The clock of a process counts nanoseconds; other sources count in steps of 10 ms.
        return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Servers:
    address: str
    broker_pid: int
    coordinator_pid: int
    ready_file: Path
    data_dir: Path
    in_object_store: bool = False
    tls: TlsFiles | None = None

    async def connect(self) -> Client:
        """A client of its own, to be closed by the caller."""
        return await magnetar.connect(self.address, tls=self.tls)

    def cpu_s(self) -> tuple[float, ...]:
        """Processor time so far of this process, the broker and the coordinator."""
        return tuple(map(cpu_s, (os.getpid(), self.broker_pid, self.coordinator_pid)))

    def cpu_us_each(self, since_s: tuple[float, ...], count: int) -> tuple[float, ...]:
        """Microseconds since an earlier `cpu_s`, divided by a count."""
        pairs = zip(since_s, self.cpu_s(), strict=True)
        return tuple((now_s - then_s) * 1e6 / count for then_s, now_s in pairs)

    def resident_bytes(self) -> tuple[int, int]:
        """Return the resident memory of the broker and of the coordinator."""
        broker, coordinator = map(psutil.Process, (self.broker_pid, self.coordinator_pid))
        return broker.memory_info().rss, coordinator.memory_info().rss

    def ready(self) -> dict[str, Any]:
        """Return the supervisor's report of its servers; empty while one is away."""
        try:
            found: dict[str, Any] = json.loads(self.ready_file.read_text())
        except (OSError, json.JSONDecodeError):
            return {}
        return found

    def metrics(self, kind: str, name: str) -> dict[str, float]:
        """A metric of the server of this kind, by its labels as they are shown."""
        with urllib.request.urlopen(self.ready()[kind]["metrics"]) as page:
            lines = page.read().decode().splitlines()
        beginning = f"magnetar_{kind}_{name}"
        found = (line.rpartition(" ") for line in lines if line.startswith(beginning))
        return {shown.removeprefix(beginning): float(value) for shown, _, value in found}

    async def kill(self, kind: str) -> float:
        """Kill a server, and wait until it is started again and ready; return when it was killed.

        `started` was told to start it again.
        """
        killed = self.ready()[kind]["pid"]
        killed_s = time.perf_counter()
        os.kill(killed, signal.SIGKILL)
        while self.ready().get(kind, {}).get("pid", killed) == killed:
            await asyncio.sleep(POLL_S)
        return killed_s


@contextmanager
def started(
    parent: Path | None = None,
    *,
    brokers: int = 1,
    restart: bool = False,
    store: str | None = None,
    with_tls: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Servers]:
    """Run brokers and a coordinator for the time of the block.

    Args:
        parent: where the data directory is made: its disk is what the durable writes measure.
        brokers: how many; `Servers` tells of the first.
        restart: start a server again that was killed.
        store: the address of an object store for the rows, below which each run has its own place.
        with_tls: whether servers talk TLS, with a certificate that is made for the run.
        settings: MAGNETAR_... variables for all servers.
    """
    environ = {name: text for name, text in os.environ.items() if not name.startswith("MAGNETAR_")}
    environ.update(settings or {})
    with TemporaryDirectory(prefix="magnetar-bench-", dir=parent) as directory:
        ready_file = Path(directory) / "ready.json"
        tls = None
        if with_tls:
            authority = Authority(Path(directory) / "certificates")
            pair = authority.sign("server")
            tls = TlsFiles(ca_file=authority.ca_file)
            environ["MAGNETAR_TLS_CERTIFICATE_FILE"] = pair.certificate_file
            environ["MAGNETAR_TLS_KEY_FILE"] = pair.key_file
            environ["MAGNETAR_TLS_CA_FILE"] = authority.ca_file
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "magnetar_cli", "standalone", "--port", "0"),
                *("--brokers", str(brokers), "--data-dir", f"{directory}/data"),
                *("--ready-file", str(ready_file)),
                *(("--store", f"{store}/{Path(directory).name}") if store else ()),
                *("--log-level", "warning", "--supervised"),
                *(() if restart else ("--no-restart",)),
            ],
            # The end of this pipe ends the servers: they end with the process that measures them.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready:"):
                raise RuntimeError("the servers did not start")
            ready = json.loads(ready_file.read_text())
            yield Servers(
                ready["broker"]["address"],
                ready["broker"]["pid"],
                ready["coordinator"]["pid"],
                ready_file,
                Path(directory) / "data",
                store is not None,
                tls,
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
