"""Brokers that start with a cluster file: the list grows, and loses and moves nobody."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.cli.running import MAGNETAR
from tests.core.ports import free_ports


class Cluster:
    """Brokers by name, each with a port and a directory of its own."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._directory = directory
        self._file = directory / "cluster.toml"
        *ports, coordinator = free_ports(len(names) + 1)
        self._addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self._coordinator = f"127.0.0.1:{coordinator}"

    def list(self, version: int, *names: str) -> None:
        """Write the list of members."""
        members = [
            f'[[brokers]]\nname = "{name}"\naddress = "{self._addresses[name]}"\n' for name in names
        ]
        members.append(
            f'[[coordinators]]\nname = "tc"\naddress = "{self._coordinator}"\ntcid = 0\n'
        )
        self._file.write_text(f"version = {version}\n\n" + "\n".join(members))

    def start(self, name: str) -> subprocess.Popen[str]:
        environ = {one: text for one, text in os.environ.items() if not one.startswith("MAGNETAR")}
        return subprocess.Popen(
            [
                *(*MAGNETAR, "broker", "--name", name, "--cluster-file", str(self._file)),
                *("--data-dir", str(self._directory / name)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def serve(self, *names: str) -> None:
        """All start, are ready, and stop."""
        with ExitStack() as stack:
            running = [stack.enter_context(self.start(name)) for name in names]
            try:
                for process in running:
                    assert process.stdout is not None
                    line = process.stdout.readline()
                    assert line.startswith("ready: broker"), (line, process.stderr)
            finally:
                for process in running:
                    process.send_signal(signal.SIGTERM)

    def refusal(self, name: str) -> str:
        """What a broker says that does not start."""
        with self.start(name) as process:
            printed, log = process.communicate(timeout=30)
        assert process.returncode == 1, (printed, log)
        assert "Traceback" not in log
        return log


def test_the_list_of_brokers_grows_and_keeps_everybodys_place(tmp_path: Path) -> None:
    """A broker at another place would look for another shard, and find nothing."""
    cluster = Cluster(tmp_path, ["a", "b", "c"])
    cluster.list(1, "b")
    cluster.serve("b")
    cluster.list(1, "b", "a")
    assert "raise the version" in cluster.refusal("b")
    cluster.list(2, "b", "a")
    cluster.serve("b", "a")
    cluster.list(3, "a", "b", "c")
    for name in ("a", "b"):
        refusal = cluster.refusal(name)
        assert "has moved b" in refusal
        assert "put it back as broker number 1 of the list" in refusal
    cluster.list(3, "b", "c")
    assert "has lost a" in cluster.refusal("b")
    cluster.list(3, "b", "a", "c")
    cluster.serve("b", "a", "c")
