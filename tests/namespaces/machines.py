"""The services of compose.yaml, each on a machine of its own: started, killed, paused, cut off."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.freezing import freeze, thaw
from tests.namespaces.network import OWN_VOLUME, Network, with_own_tmp
from tests.namespaces.server import VARIABLE, ClockFile
from tests.namespaces.services import OBJECT_SERVER, ROOT, Service, answers, environment, program_of
from tests.waiting import wait_until

CLIENTS = "clients"
READY_S = 120.0
STOPPED_S = 90.0
# A container's machine has processors to itself, more or less; here other tests take them, and who
# waits for seconds loses its lease. Without the right to it, nice only complains.
NICENESS = {"etcd": -10, "object-server": -5, "server": -5}


class Machines:
    """All services of a run, in namespaces. See network.inside()."""

    def __init__(self, directory: Path, services: dict[str, Service]) -> None:
        self._directory = directory
        self.services: dict[str, Service] = {}
        self._clocks: dict[str, ClockFile] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.network = Network(directory, [*services, CLIENTS])
        for name, service in services.items():
            volume = directory / name
            volume.mkdir()
            # The object server does not see the machine's /tmp: see network.with_own_tmp().
            own = service.image == OBJECT_SERVER
            self.services[name] = service.on(Path(OWN_VOLUME) if own else volume)
            self._clocks[name] = ClockFile(volume / "clock")

    def of_kind(self, *kinds: str) -> list[str]:
        return [name for name, one in self.services.items() if one.kind in kinds]

    def take_precedence(self) -> None:
        """Of other sessions: Linux shares processors out by session, where it has autogroups."""
        try:
            Path("/proc/self/autogroup").write_text(str(NICENESS["server"]))
        except OSError:
            pass

    def start_all(self) -> None:
        """Start everything in the order that the file asks for, until all of it is healthy."""
        self.network.start()
        waiting = dict(self.services)
        healthy: set[str] = set()
        while waiting:
            ready = [name for name, one in waiting.items() if healthy.issuperset(one.needs)]
            assert ready, f"these need each other: {sorted(waiting)}"
            for name in ready:
                del waiting[name]
                self.start(name)
            self.await_healthy(ready)
            healthy.update(ready)

    def start(self, name: str) -> None:
        """Start a service, without waiting for it."""
        service = self.services[name]
        program = program_of(service.image)
        assert program is not None
        self._ready_file(name).unlink(missing_ok=True)
        niceness = str(NICENESS[service.image])
        arguments = [*program, *service.arguments]
        if service.image == OBJECT_SERVER:
            arguments = with_own_tmp(self._directory / name, arguments)
        if not service.health:
            arguments += ["--ready-file", str(self._ready_file(name)), "--log-format", "text"]
        with self.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self.network.at(name, "nice", "-n", niceness, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ(name),
                cwd=ROOT,
            )

    def await_healthy(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                wait_until(lambda name=name: self._is_healthy(name), READY_S)  # type: ignore[misc]
            except TimeoutError:
                said = self.log(name).read_text()[-4_000:]
                raise AssertionError(f"{name} does not get healthy:\n{said}") from None

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def tell_to_stop(self, name: str) -> subprocess.Popen[bytes]:
        """Returns the process of the server, which hands over what it has, and ends."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process

    def pause(self, name: str) -> None:
        freeze(self._processes[name].pid)

    def resume(self, name: str) -> None:
        thaw(self._processes[name].pid)

    def jump(self, name: str, offset_ms: int) -> None:
        """Set by how much a server's wall clock is wrong."""
        self._clocks[name].set(offset_ms)

    def restart_ended(self) -> list[str]:
        """Start what has ended by itself, as `restart: unless-stopped` says; returns their names.

        A server whose lease or store was lost may end on purpose.
        """
        ended = [name for name, one in self._processes.items() if one.poll() is not None]
        for name in ended:
            self.start(name)
        return ended

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def _environ(self, name: str) -> dict[str, str]:
        clock = {VARIABLE: str(self._directory / name / "clock")}
        return {**environment(), **self.services[name].environ, **clock}

    def _ready_file(self, name: str) -> Path:
        return self._directory / name / "ready"

    def _is_healthy(self, name: str) -> bool:
        if self._processes[name].poll() is not None:
            return False
        service = self.services[name]
        if not service.health:
            return self._ready_file(name).exists()
        return answers(self.network.at(name, *service.health), self._environ(name))
