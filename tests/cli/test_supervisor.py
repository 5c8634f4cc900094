"""The two processes of a standalone server: started, watched and stopped in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import psutil
import pytest
from tests.cli.running import MAGNETAR, stop, wait_until_gone
from tests.waiting import until

from magnetar_cli.servers.supervisor import Supervisor

# Stands in for a server: says that it is ready, notes what happens to it, ends at SIGTERM.
FAKE = """
import json, os, signal, sys
kind, journal = sys.argv[1:3]
def note(what):
    with open(journal, "a") as file:
        file.write(f"{kind} {what}\\n")
def stop(*_):
    note("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if "fail" in sys.argv:
    sys.exit(3)
note("started")
print(json.dumps({"pid": os.getpid(), "address": os.environ["MAGNETAR_BROKERS"], "metrics": ""}),
      flush=True)
while True:
    signal.pause()
"""

Scenario = Callable[["World"], Awaitable[None]]


class World:
    def __init__(self, directory: Path, *, restart: bool, extra: tuple[str, ...]) -> None:
        script = directory / "fake.py"
        script.write_text(FAKE)
        self.journal = directory / "journal"
        self.ready_file = directory / "ready.json"
        self.supervisor = Supervisor(
            data_dir=directory / "data",
            host="127.0.0.1",
            broker_port=1,
            coordinator_port=2,
            broker_arguments=["broker", str(self.journal)],
            coordinator_arguments=["coordinator", str(self.journal), *extra],
            restart=restart,
            ready_file=self.ready_file,
            program=(sys.executable, str(script)),
        )

    async def notes(self, count: int) -> list[str]:
        def lines() -> list[str]:
            return self.journal.read_text().splitlines() if self.journal.exists() else []

        await until(lambda: len(lines()) >= count)
        return lines()

    async def ready(self, other_than: int = 0) -> dict[str, dict[str, int]]:
        content: dict[str, dict[str, int]] = {}

        def is_ready() -> bool:
            if self.ready_file.exists():
                content.update(json.loads(self.ready_file.read_text()))
            return bool(content) and content["broker"]["pid"] != other_than

        await until(is_ready)
        return content


def play(
    directory: Path, scenario: Scenario, *, restart: bool = True, extra: tuple[str, ...] = ()
) -> list[str]:
    """Run a scenario beside the supervisor, stop it, and return what the servers noted."""

    async def run() -> None:
        world = World(directory, restart=restart, extra=extra)
        running = asyncio.ensure_future(world.supervisor.run())
        async with asyncio.timeout(10):
            await scenario(world)
            if not running.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await running
        assert not world.ready_file.exists()

    asyncio.run(run())
    return (directory / "journal").read_text().splitlines()


def test_the_broker_starts_first_and_stops_last(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        content = await world.ready()
        assert content["broker"]["pid"] != content["coordinator"]["pid"]

    assert play(tmp_path, scenario) == [
        "broker started",
        "coordinator started",
        "coordinator stopped",
        "broker stopped",
    ]


def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        pid = (await world.ready())["broker"]["pid"]
        os.kill(pid, signal.SIGKILL)
        content = await world.ready(other_than=pid)
        os.kill(content["broker"]["pid"], 0)

    assert play(tmp_path, scenario).count("broker started") == 2


def test_without_restart_a_death_ends_everything_with_an_error(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        os.kill((await world.ready())["broker"]["pid"], signal.SIGKILL)
        await world.notes(3)

    with pytest.raises(click.ClickException, match="the broker died with status -9"):
        play(tmp_path, scenario, restart=False)
    assert (tmp_path / "journal").read_text().endswith("coordinator stopped\n")


def test_a_server_that_cannot_start_is_an_error_at_once(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.notes(2)

    with pytest.raises(click.ClickException, match="coordinator ended with status 3"):
        play(tmp_path, scenario, extra=("fail",))


def start_standalone(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*MAGNETAR, "standalone", "--data-dir", str(directory), "--port", "0", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready: ")
    return process


def test_servers_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with start_standalone(tmp_path) as process:
        servers = psutil.Process(process.pid).children()
        assert len(servers) == 2
        process.kill()
        wait_until_gone(servers)


def test_stopped_servers_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    """Whoever stands still does not see the end of its standard input."""
    with start_standalone(tmp_path) as process:
        servers = psutil.Process(process.pid).children()
        stop(servers)
        process.kill()
        wait_until_gone(servers)


def test_stopped_servers_continue_when_they_are_to_end(tmp_path: Path) -> None:
    process = start_standalone(tmp_path)
    stop(psutil.Process(process.pid).children())
    process.terminate()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "killed" not in log


def test_a_supervised_standalone_ends_with_whoever_started_it(tmp_path: Path) -> None:
    process = start_standalone(tmp_path, "--supervised")
    servers = psutil.Process(process.pid).children()
    _, log = process.communicate(timeout=30)  # Closes its standard input, and sends no signal.
    assert process.returncode == 0, log
    assert "killed" not in log
    wait_until_gone(servers, 0)


def test_what_its_parent_left_behind_ends_even_when_it_hangs() -> None:
    program = """
import asyncio
from magnetar_core import parent_watch
parent_watch.STOP_S_MAX = 0.1
async def hang():
    parent_watch.watch_parent(lambda: print("told", flush=True))
    await asyncio.Event().wait()
asyncio.run(hang())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input="", capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (75, "told\n"), done.stderr


def test_a_data_directory_keeps_its_cluster_id(tmp_path: Path) -> None:
    World(tmp_path, restart=True, extra=())
    first = (tmp_path / "data" / "cluster-id").read_text()
    World(tmp_path, restart=True, extra=())
    assert (tmp_path / "data" / "cluster-id").read_text() == first
