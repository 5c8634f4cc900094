"""deploy/compose on an engine: Compose's command line, and questions to what runs there."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.core.ports import free_ports
from tests.deploy.engine import HERE, Engine, engine
from tests.deploy.services import COMPOSE

ROOT = HERE.parents[1]
SETTINGS = ROOT / "deploy" / "compose" / ".env"
# What is built stays here from run to run.
DIRECTORY = Path(os.environ.get("MAGNETAR_COMPOSE_DIRECTORY", ROOT / ".compose"))
STARTED_S = time.time()
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
STATS_ATTEMPTS = 10
UP_S_MAX = 900.0
BUILD_S_MAX = 1_800.0


def tell(text: str) -> None:
    print(f"\n{time.time() - STARTED_S:6.1f} s  {text}", end="", flush=True)


def in_mib(memory: dict[str, int]) -> str:
    each = ", ".join(f"{name} {used / (1 << 20):.0f}" for name, used in sorted(memory.items()))
    return f"{each}; together {sum(memory.values()) / (1 << 20):.0f} MiB"


def default(name: str) -> str:
    """Return the default of a variable, from deploy/compose/.env."""
    (value,) = re.findall(rf"^{name}=(.*)$", SETTINGS.read_text(), re.MULTILINE)
    return str(value)


def _open_files() -> int:
    """Return how many files a server may open: the default, or what this machine gives."""
    wanted, hard = int(default("OPEN_FILES")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def ports() -> list[str]:
    """The names of all ports that deploy/compose/.env publishes."""
    return re.findall(r"^(\w+_PORT)=", SETTINGS.read_text(), re.MULTILINE)


class Cluster:
    """One project of Compose, on ports that were free.

    Args:
        file: of deploy/compose.
    """

    def __init__(self, engine: Engine, directory: Path, file: str) -> None:
        self.engine = engine
        self.demo_started_s = 0.0
        self._file = file
        names = ports()
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        base = engine.base(default("BASE_IMAGE"))
        self.has_grafana = engine.pulled(default("GRAFANA_IMAGE"))
        # Packages come from wherever pip takes them on this machine.
        empty = directory / "empty"
        empty.write_bytes(b"")
        pip_config = engine.environ.get("PIP_CONFIG_FILE") or str(empty)
        ca_bundle = engine.environ.get("PIP_CERT") or str(empty)
        self.environ = {
            **engine.environ,
            **{name: str(port) for name, port in self.ports.items()},
            "BASE_IMAGE": base,
            "PROMETHEUS_IMAGE": engine.prometheus(default("PROMETHEUS_IMAGE"), base),
            "GRPCURL_IMAGE": engine.grpcurl(default("GRPCURL_IMAGE"), base),
            "ETCD_IMAGE": engine.etcd(default("ETCD_IMAGE"), base),
            "OBJECT_SERVER_IMAGE": engine.object_server(default("OBJECT_SERVER_IMAGE"), base),
            "OPEN_FILES": str(_open_files()),
            "COMPOSE_PROFILES": "grafana,console" if self.has_grafana else "console",
            "COMPOSE_PROJECT_NAME": "magnetar-test",
            "PIP_CONFIG_FILE": pip_config,
            "CA_BUNDLE_FILE": ca_bundle,
        }

    def address(self, port: str) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    def command(self, *arguments: str) -> list[str]:
        assert COMPOSE is not None
        changed = self._file.replace(".yaml", ".test.yaml")
        files = (ROOT / "deploy" / "compose" / self._file, HERE / changed)
        named = [word for file in files for word in ("--file", str(file))]
        return [COMPOSE, "--progress", "plain", *named, *arguments]

    def compose(self, *arguments: str, timeout_s: float = 300.0, stdin: str | None = None) -> str:
        """Raises: AssertionError with what Compose said."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=ROOT / "deploy" / "compose",
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}:\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
        return done.stdout

    def build(self) -> None:
        self.compose("--profile", "*", "build", timeout_s=BUILD_S_MAX)

    def up(self) -> None:
        self.compose("up", "--wait", "--no-build", timeout_s=UP_S_MAX)

    def down(self) -> None:
        self.compose("--profile", "*", "down", "--volumes", "--timeout", "30")

    def run(self, service: str, *command: str, stdin: str | None = None) -> str:
        """A container of a profile, for one command."""
        return self.compose(
            "--profile", "*", "run", "--rm", "-T", service, *command, stdin=stdin, timeout_s=600.0
        )

    def names(self, all_states: bool = False) -> list[str]:
        more = ("--all",) if all_states else ()
        listed = self.engine.docker(
            "ps", *more, "--format", "{{.Names}}", "--filter", "name=magnetar-test-"
        )
        return listed.split()

    def memory_bytes(self) -> dict[str, int]:
        """Return the memory of each container, by its service."""
        names = self.names()
        found: dict[str, int] = {}
        for _ in range(STATS_ATTEMPTS):
            found.update(self._told_memory_bytes(names))
            # A container that did not report for two seconds is left out, as on a busy machine.
            if len(found) == len(names):
                break
        return found

    def _told_memory_bytes(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        told = self.engine.docker("stats", "--no-stream", "--format", "{{json .}}", *names)
        for line in told.splitlines():
            one = json.loads(line)
            number, unit = re.fullmatch(
                r"([0-9.]+)([KMG]?i?B)", one["MemUsage"].split(" / ")[0]
            ).groups()  # type: ignore[union-attr]
            name = re.sub(r"(-run)?-[0-9a-f]+$", "", one["Name"].removeprefix("magnetar-test-"))
            yield name, int(float(number) * UNITS[unit])

    @contextmanager
    def watching_memory(self) -> Iterator[dict[str, int]]:
        """The most that each container had in use, filled while this lasts."""
        peaks: dict[str, int] = {}
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                try:
                    now = self.memory_bytes()
                except AssertionError:
                    continue  # One has gone between the list and the question.
                for name, used in now.items():
                    peaks[name] = max(used, peaks.get(name, 0))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield peaks
        finally:
            stop.set()
            watching.join()

    def query_range(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return Prometheus' answer to a panel's query: series with their points."""
        asked = urllib.parse.urlencode(
            {"query": expr, "start": start_s, "end": end_s, "step": "5s"}
        )
        url = f"http://{self.address('PROMETHEUS_PORT')}/api/v1/query_range?{asked}"
        with urllib.request.urlopen(url, timeout=30) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series


def started(file: str) -> Iterator[Cluster]:
    """For fixtures: a cluster that is built and started, and leaves nothing but images."""
    if COMPOSE is None:
        pytest.skip("docker-compose comes with the extra `dev` on Linux x86-64")
    with engine(DIRECTORY) as running:
        tell("an engine answers")
        made = Cluster(running, DIRECTORY, file)
        # What a run that was killed has left.
        made.down()
        made.build()
        tell(f"images of {file} are built")
        try:
            made.up()
            tell(f"{file} is up" + ("" if made.has_grafana else ", without Grafana"))
            yield made
        finally:
            made.down()
            tell(f"{file} is down")
        assert made.names(all_states=True) == []
        volumes = running.docker("volume", "ls", "--quiet", "--filter", "name=magnetar-test")
        assert volumes == ""
    tell("the engine is as it was")
