"""`magnetar console`, and --console of the commands that start servers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.cli.running import running_standalone
from tests.console.running import running_console
from tests.environment import without_settings
from tests.waiting import wait_until

from magnetar import blocking
from magnetar_cli.program import cli
from magnetar_cli.servers import console_options
from magnetar_console import settings


def title(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as reply:
        found = re.search(r"<title>(.*?)</title>", reply.read().decode())
    assert found
    return found[1]


def test_standalone_runs_a_console_and_starts_it_again(tmp_path: Path) -> None:
    with running_standalone(tmp_path, "--console") as standalone:
        ready = standalone.ready()["console"]
        assert title(ready["address"]) == "Transactions · Magnetar"
        psutil.Process(ready["pid"]).send_signal(signal.SIGKILL)
        wait_until(lambda: standalone.ready()["console"]["pid"] != ready["pid"])
        assert title(standalone.ready()["console"]["address"]) == "Transactions · Magnetar"
    log = (tmp_path / "log").read_text()
    assert "the console died with status -9; it is started again" in log


def test_standalone_prints_where_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "magnetar_cli", "standalone", "--port", "0", "--console"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=without_settings(),
    )
    try:
        assert process.stdout is not None
        assert re.search(r", console http://127\.0\.0\.1:\d+/$", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_without_servers_it_says_so_and_waits_for_them(tmp_path: Path) -> None:
    with running_console("127.0.0.1:1", tmp_path / "log") as address:
        assert title(f"{address}/") == "Transactions · Magnetar"
        with urllib.request.urlopen(f"{address}/events?view=groups", timeout=30) as events:
            lines = (line.decode() for line in events)
            beat = next(line for line in lines if '"error"' in line)
        told = json.loads(beat.partition("data: ")[2])
        assert told["as_of_ms"] == 0
        assert "127.0.0.1:1" in told["error"]


@pytest.mark.parametrize(
    "command", [["console"], ["standalone", "--console"], ["cluster", "up", "--console"]]
)
def test_a_missing_package_is_named(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(console_options, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "no module jinja2" in done.output
    assert "pip install 'magnetar[console]'" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["standalone"], ["cluster", "up"]])
def test_schemas_are_read_before_servers_start(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, why in (
        (["--schema", "t=t.avsc"], "add --console"),
        (["--console", "--schema", "t"], "is not TOPIC=FILE"),
        (["--console", "--schema", "t=t.avsc"], "cannot read the schema t.avsc"),
    ):
        done = CliRunner().invoke(cli, [*command, *options])
        assert done.exit_code != 0
        assert why in f"{done.output} {done.exception}"
    assert not list(tmp_path.iterdir())


def test_the_console_of_standalone_shows_values_by_a_schema(tmp_path: Path) -> None:
    schema = tmp_path / "payment.avsc"
    fields = [{"name": "amount", "type": "long"}]
    schema.write_text(json.dumps({"type": "record", "name": "Payment", "fields": fields}))
    options = ("--console", "--schema", f"payments={schema}")
    with running_standalone(tmp_path, *options) as standalone:
        ready = standalone.ready()
        with blocking.connect(standalone.environ["MAGNETAR_BROKER"]) as client:
            client.admin.topics.create("payments")
            client.create_producer("payments").send(b"\x2a")
        view = f"{ready['console']['address']}events?view=messages&name=payments&partition=0"
        with urllib.request.urlopen(view, timeout=30) as events:
            rows = next(line for line in (one.decode() for one in events) if "amount" in line)
    assert "21" in rows


def test_the_help_names_the_port_that_it_has() -> None:
    assert console_options.DEFAULT_PORT == settings.DEFAULT_PORT
    text = " ".join(CliRunner().invoke(cli, ["console", "--help"]).output.split())
    assert str(settings.DEFAULT_PORT) in text
