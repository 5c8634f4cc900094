"""The wheel in environments that have nothing else: what `pip install magnetar` gives a user."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.deploy.wheels import ROOT, TIMEOUT_S, Install, environment, run

from magnetar_core.version import VERSION

# What the extras bring, and the SDK does without.
NOT_OF_THE_SDK = (
    "click",
    "grpc",
    "rich",
    "rocksdict",
    "pydantic",
    "prometheus_client",
    "psutil",
    "pyspark",
)


def test_the_sdk_needs_no_other_part_and_the_program_says_which_one_is_missing(
    install: Install, tmp_path: Path
) -> None:
    programs = install()
    imported = (
        "import importlib.util, json, magnetar, magnetar.blocking, magnetar.dual_write; "
        f"print(json.dumps([one for one in {NOT_OF_THE_SDK} if importlib.util.find_spec(one)]))"
    )
    assert json.loads(run(programs / "python", "-c", imported, cwd=tmp_path)) == []
    done = subprocess.run(
        [programs / "magnetar", "--version"], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pip install 'magnetar[cli]'" in line

    install("[cli]")
    assert VERSION in run(programs / "magnetar", "--version", cwd=tmp_path)
    done = subprocess.run(
        [programs / "magnetar", "broker"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pip install 'magnetar[server]'" in line


def test_servers_start_and_the_readmes_program_runs(install: Install, tmp_path: Path) -> None:
    programs = install("[server]")
    ready = tmp_path / "ready.json"
    command = [str(programs / "magnetar"), "standalone", "--port", "0"]
    command += ["--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--ready-file", ready],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as standalone:
        try:
            assert standalone.stdout is not None
            assert standalone.stdout.readline().startswith("ready: ")
            address = json.loads(ready.read_text())["broker"]["address"]
            program = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
            program = program.replace("127.0.0.1:6650", address)
            run(programs / "python", "-c", program, cwd=tmp_path)
            printed = run(
                *(programs / "magnetar", "--broker", address),
                *("consume", "invoices", "--until-end"),
                cwd=tmp_path,
            )
            assert printed.splitlines() == ["invoice for purchase 1"]
        finally:
            standalone.terminate()
        assert standalone.wait(TIMEOUT_S) == 0


@pytest.mark.soak
def test_what_spark_needs_comes_with_its_extra(install: Install, tmp_path: Path) -> None:
    """Half a gigabyte is unpacked: too long for every day."""
    programs = install("[spark]")
    code = (
        "import importlib.util, magnetar_spark, pyspark_magnetar; "
        "print(importlib.util.find_spec('click'))"
    )
    assert run(programs / "python", "-c", code, cwd=tmp_path).strip() == "None"
