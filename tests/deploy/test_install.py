"""The wheel in environments that have nothing else: what `pip install magnetar` gives a user."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.wheels import ROOT, TIMEOUT_S, Install, environment, install_wheel, run
from tests.pages.pages import follow

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
# Spark's part needs another extra.
DEMO = ("-m", "magnetar_flights.demo", "--no-spark")
DEMO_FLIGHTS = ROOT / ".demo" / "flights.csv"
# Other packages that tests/client imports, directly or through tests of other folders.
TOOLS_OF_TESTS = (
    *("pytest", "pytest-randomly", "pytest-xdist", "hypothesis", "freezegun", "gevent"),
    *("cryptography", "numpy", "psycopg[binary]", "sqlalchemy"),
)
LONG_S = 1_800


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


def test_servers_start_and_the_readmes_program_runs(server_programs: Path, tmp_path: Path) -> None:
    programs = server_programs
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


@pytest.mark.soak
def test_the_readme(server_programs: Path, tmp_path: Path) -> None:
    """Follow its commands and its program, twice, as tests/pages does with the sources."""
    follow("README.md", tmp_path, server_programs)


@pytest.mark.soak
def test_the_demo(server_programs: Path, tmp_path: Path) -> None:
    """A tenth of the flights, with all kills of servers and workers."""
    if not DEMO_FLIGHTS.exists():
        pytest.skip("`make demo` has not fetched the flights")
    example = tmp_path / "flights"
    shutil.copytree(
        ROOT / "examples" / "flights", example, ignore=shutil.ignore_patterns("__pycache__")
    )
    options = ("--flights", DEMO_FLIGHTS, "--limit", "33000")
    run(server_programs / "python", *DEMO, *options, cwd=example, timeout_s=LONG_S)


@pytest.mark.soak
def test_the_tests_of_the_sdk(wheel: Path, tmp_path: Path) -> None:
    """They are copied to a folder without the product's packages, so that they import the wheel."""
    programs = install_wheel(wheel, tmp_path / "environment", "[server]", *TOOLS_OF_TESTS)
    checkout = tmp_path / "checkout"
    for name in ("tests", "tools"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    # The settings of pytest, and no package beside it.
    shutil.copy(ROOT / "pyproject.toml", checkout)
    origin = run(programs / "python", "-c", "import magnetar; print(magnetar)", cwd=checkout)
    assert str(programs.parent) in origin
    command = (programs / "python", "-m", "pytest", "-q", "-n", "2", "-m", "not soak")
    run(*command, "tests/client", cwd=checkout, timeout_s=LONG_S)
