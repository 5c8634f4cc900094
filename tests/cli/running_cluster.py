"""A real `magnetar cluster up`, for tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import fork_server
from tests.cli.running import MAGNETAR
from tests.environment import own_environment
from tests.waiting import wait_until

from magnetar_cli.cluster.local import programs
from magnetar_core.config import InvalidConfig

# Tests run beside others: a pause of some seconds shall take no shard away.
UP = (*MAGNETAR, "cluster", "up", "--port", "0", "--lease-ms", "10000")
START_S_MAX = 120
# Many processes begin at once, on machines with few cores.
PATIENCE_S = 60


def skip_without_programs() -> None:
    """Skip the test where etcd, an object server or packages are missing."""
    try:
        programs.require_object_store()
        programs.etcd_program()
        programs.object_server_program()
    except InvalidConfig as error:
        pytest.skip(str(error))


@dataclass
class Up:
    process: subprocess.Popen[str]
    content: dict[str, Any]
    environ: dict[str, str]

    @property
    def processes(self) -> dict[str, psutil.Process]:
        return {one["name"]: psutil.Process(one["pid"]) for one in self.content["servers"]}

    def json(self, *arguments: str) -> Any:
        """Whatever the exit status: it says whether each shard has an owner."""
        done = fork_server.run(
            *("cluster", *arguments, "--json"),
            environ=self.environ | self.content["environment"],
            timeout_s=60,
        )
        assert b"Traceback" not in done.stderr
        return json.loads(done.stdout) if done.stdout else []

    def owners(self) -> dict[str, str]:
        return {one["name"]: one["owner"] for one in self.json("shards")}


@contextmanager
def up(directory: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[Up]:
    ready_file = directory / "ready.json"
    temporary = directory / "temporary"
    temporary.mkdir()
    log = (directory / "out").open("w")
    process = subprocess.Popen(
        [*UP, "--ready-file", str(ready_file), *arguments],
        stdout=log,
        stderr=log,
        text=True,
        env=own_environment(temporary) | dict(settings or {}),
        start_new_session=True,
    )

    def is_ready() -> bool:
        assert process.poll() is None, (directory / "out").read_text()
        return ready_file.exists()

    try:
        wait_until(is_ready, START_S_MAX)
        yield Up(process, json.loads(ready_file.read_text()), own_environment(temporary))
    finally:
        process.kill()
        process.wait()
        log.close()
