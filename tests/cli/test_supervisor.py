"""The processes of a standalone cluster: started, watched and stopped in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from tests.cli.running import MAGNETAR, stop, wait_until_gone
from tests.waiting import until

from magnetar_cli.servers.standalone_members import standalone_members
from magnetar_cli.servers.supervisor import Child, ChildFailed, Supervisor

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
if "slow" in sys.argv:
    note("waits")
    open(journal + ".go").read()
note("started")
print(json.dumps({"pid": os.getpid(), "address": os.environ["MAGNETAR_BROKERS"], "metrics": ""}),
      flush=True)
while True:
    signal.pause()
"""

Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A supervisor of fake servers.

    Args:
        extra: arguments of each coordinator.
    """

    def __init__(
        self,
        directory: Path,
        *,
        restart: bool = True,
        extra: tuple[str, ...] = (),
        brokers: int = 1,
        coordinators: int = 1,
    ) -> None:
        script = directory / "fake.py"
        script.write_text(FAKE)
        self.journal = directory / "journal"
        self.ready_file = directory / "ready.json"
        members = standalone_members(
            directory / "data",
            "127.0.0.1",
            list(range(1, 1 + brokers)),
            list(range(11, 11 + coordinators)),
        )

        def arguments(kind: str, count: int, *more: str) -> list[list[str]]:
            names = [f"{kind}-{number}" for number in range(count)] if count > 1 else [kind]
            return [[name, str(self.journal), *more] for name in names]

        self.supervisor = Supervisor(
            members=members,
            broker_arguments=arguments("broker", brokers),
            coordinator_arguments=arguments("coordinator", coordinators, *extra),
            restart=restart,
            ready_file=self.ready_file,
            program=(sys.executable, str(script)),
        )

    async def notes(self, count: int) -> list[str]:
        def lines() -> list[str]:
            return self.journal.read_text().splitlines() if self.journal.exists() else []

        await until(lambda: len(lines()) >= count)
        return lines()

    async def ready(self, other_than: int = 0) -> dict[str, Any]:
        """The ready file, when this process is none of a broker's any more."""
        content: dict[str, Any] = {}

        def is_ready() -> bool:
            if self.ready_file.exists():
                content.update(json.loads(self.ready_file.read_text()))
            return bool(content) and other_than not in [one["pid"] for one in content["brokers"]]

        await until(is_ready)
        return content


def play(directory: Path, scenario: Scenario, **settings: Any) -> list[str]:
    """Run a scenario beside the supervisor, stop it, and return what the servers noted."""

    async def run() -> None:
        world = World(directory, **settings)
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


def test_the_first_broker_starts_before_all_others_and_stops_last(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        content = await world.ready()
        brokers, coordinators = content["brokers"], content["coordinators"]
        assert (len(brokers), len(coordinators)) == (3, 2)
        assert len({one["pid"] for one in (*brokers, *coordinators)}) == 5
        assert (content["broker"], content["coordinator"]) == (brokers[0], coordinators[0])

    notes = play(tmp_path, scenario, brokers=3, coordinators=2)
    order = [
        {"broker-0 started"},
        {"broker-1 started", "broker-2 started"},
        {"coordinator-0 started", "coordinator-1 started"},
        {"coordinator-0 stopped", "coordinator-1 stopped"},
        {"broker-1 stopped", "broker-2 stopped"},
        {"broker-0 stopped"},
    ]
    for expected in order:
        assert set(notes[: len(expected)]) == expected
        del notes[: len(expected)]
    assert not notes


def test_each_of_several_is_started_again_by_itself(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        before = await world.ready()
        os.kill(before["brokers"][1]["pid"], signal.SIGKILL)
        after = await world.ready(other_than=before["brokers"][1]["pid"])
        assert after["brokers"][0] == before["brokers"][0]
        assert after["brokers"][2] == before["brokers"][2]
        assert after["coordinators"] == before["coordinators"]

    notes = play(tmp_path, scenario, brokers=3, coordinators=2)
    assert [notes.count(f"broker-{number} started") for number in range(3)] == [1, 2, 1]


def test_a_broker_that_dies_while_coordinators_start_is_started_again(tmp_path: Path) -> None:
    """They ask brokers before they serve: nobody was ready, and nobody said why."""
    go = tmp_path / "journal.go"
    os.mkfifo(go)

    async def scenario(world: World) -> None:
        await world.notes(3)
        (pid,) = (
            one.pid for one in psutil.Process().children() if one.cmdline()[2:3] == ["broker-1"]
        )
        os.kill(pid, signal.SIGKILL)
        await world.notes(4)
        assert not world.ready_file.exists()
        await asyncio.to_thread(go.write_text, "go")
        await world.ready()

    notes = play(tmp_path, scenario, brokers=2, extra=("slow",))
    assert notes.count("broker-1 started") == 2
    assert notes.index("coordinator started") > 3


def test_without_restart_the_death_of_any_ends_everything(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        os.kill((await world.ready())["coordinators"][1]["pid"], signal.SIGKILL)
        await world.notes(6)

    with pytest.raises(click.ClickException, match="coordinator-1 died with status -9"):
        play(tmp_path, scenario, restart=False, brokers=2, coordinators=2)
    assert (tmp_path / "journal").read_text().endswith("broker-0 stopped\n")


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
from magnetar_core.process import parent_watch
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


def test_a_server_with_a_log_of_its_own_is_told_with_its_end(tmp_path: Path) -> None:
    """Whoever removes the log with its directory has told before why the server ended."""

    async def start() -> None:
        command = ("/bin/sh", "-c", "echo no port >&2; exit 3")
        child = Child("broker-a", command, [], dict(os.environ), tmp_path / "log")
        with pytest.raises(ChildFailed, match=r"broker-a ended with status 3(.|\n)*\nno port$"):
            await child.start()

    asyncio.run(start())
