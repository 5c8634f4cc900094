"""Every command with standard streams as cron, daemons and pipes leave them: closed, or unread.

The commands are those of the program: one without a line in RUNS fails here.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest
from tests import fork_server
from tests.cli.running import Standalone
from tests.cli.test_optimized import EVERY
from tests.environment import without_settings
from tests.waiting import wait_until

from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_core.error_kinds import ErrorKind

STDIN, STDOUT, STDERR = range(3)
CLOSED_TEXT = b"standard input or output is closed"
UNREACHABLE = "127.0.0.1:1"


@dataclass(frozen=True)
class Run:
    """How a command is run: its arguments, and the status with which it ends."""

    arguments: str
    status: int = 0


NOT_FOUND, ASK_AGAIN = STATUS_OF_KIND[ErrorKind.FIX], STATUS_OF_KIND[ErrorKind.RETRY]
# {topic}: has messages, subscription "readers" and no open transaction. {new}: a name that nothing
# has. {here}: an empty directory. {store}: a stopped server's. {backup}: what backup made.
RUNS = {
    "cluster drain": Run("broker-a --etcd {unreachable}", ASK_AGAIN),
    "cluster members": Run("--json"),
    "cluster move": Run("broker-0 broker-a --etcd {unreachable}", ASK_AGAIN),
    "cluster rebalance": Run("--etcd {unreachable}", ASK_AGAIN),
    "cluster shards": Run(""),
    "health": Run(""),
    "topics alter": Run("{topic} --retention 7d"),
    "topics create": Run("{new}"),
    "topics delete": Run("{new} --yes", NOT_FOUND),
    "topics describe": Run("{topic}"),
    "topics list": Run("--json"),
    "topics offsets": Run("{topic}"),
    "topics skip-damaged": Run("{topic} --dry-run"),
    "subscriptions delete": Run("{topic} {new} --yes", NOT_FOUND),
    "subscriptions list": Run("{topic}"),
    "subscriptions seek": Run("{topic} readers --to earliest --yes"),
    "groups delete": Run("{new} --yes", NOT_FOUND),
    "groups describe": Run("{new}", NOT_FOUND),
    "groups list": Run("--json"),
    "groups reset-offsets": Run("{new} --to earliest --dry-run", NOT_FOUND),
    "produce": Run("{topic}"),
    "consume": Run("{topic} --until-end"),
    "cut": Run("{topic}"),
    "peek": Run("{topic}"),
    # The output is no terminal.
    "top": Run("", 2),
    "transactions abort": Run("0:1:999999 --yes", NOT_FOUND),
    "transactions accept-loss": Run("0:1:999999 --yes", NOT_FOUND),
    "transactions commit": Run("0:1:999999", NOT_FOUND),
    "transactions complete": Run("{new} --state 1/0 --yes", NOT_FOUND),
    "transactions describe": Run("--transactional-id {new}", NOT_FOUND),
    "transactions describe-name": Run("{new}"),
    "transactions describe-producers": Run("{topic} 0"),
    "transactions find-hanging": Run("--topic {topic}"),
    "transactions force-terminate": Run("{new} --yes", NOT_FOUND),
    "transactions history": Run("0:1:999999", NOT_FOUND),
    "transactions list": Run("--all"),
    "transactions remove-name": Run("{new} --yes", NOT_FOUND),
    "check": Run("{store}"),
    "backup": Run("{here}/{new}"),
    "restore": Run("{backup} --data-dir {here}/{new}"),
    "storage accept-loss": Run("{store} --dry-run"),
    "context list": Run(""),
    "context remove": Run("{new}", 1),
    "context set": Run("{new} --broker nonsense", 1),
    "context use": Run("{new}", 1),
    "log-level": Run("broker-0"),
    "config show": Run(""),
    "access check": Run("{here}/access.toml"),
    "completion": Run("bash"),
    "json-schema": Run("topics list"),
}
# They take long to start. All of their streams are closed at once.
SLOW_RUNS = {
    "cluster up": Run("--store nonsense", 1),
    "pipeline audit": Run("{topic} --broker {unreachable}", ASK_AGAIN),
    "pipeline offload": Run("{topic} {here}/off --broker {unreachable}", ASK_AGAIN),
    "pipeline restore": Run("{backup} {topic} --broker {unreachable}", ASK_AGAIN),
    "pipeline tables": Run("{topic} --format text --broker {unreachable}", ASK_AGAIN),
    "pipeline transform": Run(
        "{topic} out --format text --checkpoint {here}/off --broker {unreachable}", ASK_AGAIN
    ),
}
SERVERS = {
    "standalone": "--data-dir {data} --port 0",
    "broker": "--data-dir {data} --port 0",
    "coordinator": "--data-dir {data} --port 0 --metrics-port 0",
    "console": "--port 0",
}
ACCESS = '[principals]\n"größe" = ["admin"]\n'
_numbers = itertools.count()


def test_every_command_is_run_here() -> None:
    groups = {path[:-1] for path in EVERY}
    leaves = {" ".join(path) for path in EVERY if path not in groups}
    assert leaves == {*RUNS, *SLOW_RUNS, *SERVERS}


@dataclass
class World:
    """What the commands find."""

    environ: dict[str, str]
    names: dict[str, str]

    def arguments(self, command: str, run: Run) -> list[str]:
        text = f"{command} {run.arguments}".format(**self.names, new=f"new-{next(_numbers)}")
        return text.split()

    def run(self, command: str, run: Run, closed: list[int]) -> tuple[int, bytes]:
        done = fork_server.run(
            *self.arguments(command, run), stdin=b"a line\n", environ=self.environ, closed=closed
        )
        return done.returncode, done.stderr

    def status(self, command: str, run: Run, stdout: IO[bytes], stderr: IO[bytes]) -> int:
        return fork_server.ForkedProcess(
            *self.arguments(command, run), stdout=stdout, stderr=stderr, environ=self.environ
        ).wait()


@pytest.fixture(scope="module")
def world(standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> World:
    here = tmp_path_factory.mktemp("streams")
    (here / "access.toml").write_text(ACCESS, encoding="utf-8")
    topic = f"streams-{next(_numbers)}"
    standalone.run("produce", topic, stdin=b"one\ntwo\n")
    consume = ("consume", topic, "--subscription", "readers", "--until-end")
    standalone.run(*consume)
    standalone.run("backup", str(here / "backup"))
    with serving("broker", here / "store", standalone.environ):
        pass
    names = {"topic": topic, "here": str(here), "unreachable": UNREACHABLE}
    names |= {"store": str(here / "store"), "backup": str(here / "backup")}
    return World(standalone.environ, names)


@contextmanager
def serving(
    kind: str,
    data: Path,
    environ: dict[str, str],
    stdout: IO[bytes] | None = None,
    closed: tuple[int, ...] = (),
) -> Iterator[dict[str, object]]:
    """A server until the end of the block; it has to end in order."""
    ready_file = data.with_suffix(".ready")
    process = fork_server.ForkedProcess(
        kind,
        *SERVERS[kind].format(data=data).split(),
        *("--ready-file", str(ready_file)),
        environ=environ,
        stdout=stdout,
        closed=closed,
    )
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None)
        yield json.loads(ready_file.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        ready_file.unlink(missing_ok=True)


def told(error: bytes) -> bytes:
    """What a command has said, without the figures of `produce` and the like."""
    assert b"Traceback" not in error, error
    assert b"this is a bug" not in error, error
    assert b"Exception ignored" not in error, error
    assert b"roken pipe" not in error, error
    return error


@pytest.mark.parametrize("command", RUNS)
def test_a_command_without_input_and_errors_does_what_it_does(world: World, command: str) -> None:
    status = 1 if command == "produce" else RUNS[command].status
    assert world.run(command, RUNS[command], [STDIN, STDERR]) == (status, b"")


@pytest.mark.parametrize("command", RUNS)
def test_a_command_without_output_works_or_says_so(world: World, command: str) -> None:
    status, error = world.run(command, RUNS[command], [STDOUT])
    if CLOSED_TEXT in told(error):
        assert status == 1
        assert error.count(b"Error:") == 1
    else:
        assert status == RUNS[command].status


@pytest.mark.parametrize("command", RUNS)
def test_a_command_whose_reader_has_enough_does_what_it_does(world: World, command: str) -> None:
    readable, writable = os.pipe()
    os.close(readable)
    with os.fdopen(writable, "wb") as output, TemporaryFile() as errors:
        assert world.status(command, RUNS[command], output, errors) == RUNS[command].status
        errors.seek(0)
        told(errors.read())


@pytest.mark.parametrize("command", ["produce", "backup", "topics list", "groups delete"])
def test_a_command_whose_messages_nobody_reads_does_what_it_does(
    world: World, command: str
) -> None:
    """Those of `produce` and `backup` tell of progress, that of the last one of an error."""
    readable, writable = os.pipe()
    os.close(readable)
    with os.fdopen(writable, "wb") as messages, TemporaryFile() as output:
        assert world.status(command, RUNS[command], output, messages) == RUNS[command].status


def test_without_input_there_is_nothing_to_send(world: World) -> None:
    status, error = world.run("produce", RUNS["produce"], [STDIN])
    assert (status, CLOSED_TEXT in told(error)) == (1, True)


@pytest.mark.parametrize("command", SLOW_RUNS)
def test_a_job_without_any_stream_ends_as_with_them(world: World, command: str) -> None:
    run = SLOW_RUNS[command]
    assert world.run(command, run, [STDIN, STDOUT, STDERR]) == (run.status, b"")


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of servers; coordinators find a broker there."""
    with serving("broker", tmp_path_factory.mktemp("broker") / "data", without_settings()) as ready:
        yield without_settings() | {"MAGNETAR_BROKER": str(ready["address"])}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_serves_without_any_stream(
    tmp_path: Path, kind: str, environ: dict[str, str]
) -> None:
    with serving(kind, tmp_path / "data", environ, closed=(STDIN, STDOUT, STDERR)) as ready:
        assert ready["pid"]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_serves_although_its_output_takes_nothing(
    tmp_path: Path, kind: str, environ: dict[str, str]
) -> None:
    readable, writable = os.pipe()
    os.close(readable)
    data = tmp_path / "data"
    with os.fdopen(writable, "wb") as unread, serving(kind, data, environ, unread) as ready:
        assert ready["pid"]
    with open("/dev/full", "wb") as full, serving(kind, data, environ, full) as ready:
        assert ready["pid"]


def test_a_subscription_does_not_lose_what_could_not_be_printed(world: World) -> None:
    topic = f"unread-{next(_numbers)}"
    run = ("consume", topic, "--subscription", "s", "--until-end")
    fork_server.run("produce", topic, stdin=b"one\ntwo\n", environ=world.environ)
    assert fork_server.run(*run, environ=world.environ, closed=[STDOUT]).returncode == 1
    assert fork_server.run(*run, environ=world.environ).stdout == b"one\ntwo\n"


@pytest.mark.parametrize(("streams", "status"), [("2>&-", 0), (">&-", 1), ("<&- >&- 2>&-", 1)])
@pytest.mark.parametrize("flag", ["-B", "-OO"])
def test_a_shell_closes_streams(streams: str, status: int, flag: str) -> None:
    """The other tests close them in a process that is forked."""
    program = [sys.executable, flag, "-m", "magnetar_cli", "config", "show"]
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {streams}', "bash", *program], capture_output=True, check=False
    )
    assert (done.returncode, bool(done.stdout)) == (status, status == 0)
    told(done.stderr)


def test_what_the_encoding_of_the_output_lacks_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(ACCESS, encoding="utf-8")
    environ = without_settings() | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "magnetar_cli", "access", "check", str(file)],
        env=environ,
        capture_output=True,
        check=True,
    )
    assert b"gr\\xf6\\xdfe" in done.stdout
