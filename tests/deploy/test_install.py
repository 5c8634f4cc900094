"""The wheel in environments that have nothing else: what `pip install magnetar` gives a user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.archives import unpack

from magnetar_core.version import VERSION

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
# What the extras bring, and the SDK does without.
NOT_OF_THE_SDK = (
    "click",
    "rich",
    "rocksdict",
    "pydantic",
    "prometheus_client",
    "psutil",
    "pyspark",
)

Install = Callable[..., Path]


def run(*command: str | Path, cwd: Path, timeout_s: float = TIMEOUT_S) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, (command, done.stdout[-2_000:], done.stderr[-2_000:])
    return done.stdout


def environment() -> dict[str, str]:
    """Without anything that would lead to the sources."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def new_environment(path: Path) -> Path:
    """Its Python; pip stays outside."""
    venv.create(path, with_pip=False, symlinks=True)
    return path / "bin" / "python"


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pip of the tests' own environment, whose cache all of them share."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)),
            # Most of what they bring is never loaded.
            *("install", "--quiet", "--no-compile"),
            *("--constraint", str(ROOT / "constraints.txt"), *arguments),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the source distribution, which is made from what git knows and nothing else."""
    folder = tmp_path_factory.mktemp("build")
    with (ROOT / "pyproject.toml").open("rb") as file:
        requirements = tomllib.load(file)["build-system"]["requires"]
    builder = new_environment(folder / "builder")
    done = pip(builder, *requirements)
    if done.returncode != 0:
        pytest.skip(f"no package index answers: {done.stderr.strip().splitlines()[-1]}")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in run(*command, cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
    run(builder, "-c", build.format("sdist"), folder, cwd=folder / "source")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        unpack(archive, folder / "unpacked")
    run(
        builder,
        "-c",
        build.format("wheel"),
        folder,
        cwd=folder / "unpacked" / f"magnetar-{VERSION}",
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Install:
    """Installs the wheel with an extra, and what that needs; returns the folder of its programs."""

    def install(extra: str = "") -> Path:
        folder = tmp_path / "environment"
        python = folder / "bin" / "python"
        if not folder.exists():
            new_environment(folder)
        done = pip(python, f"magnetar{extra} @ {wheel.as_uri()}")
        assert done.returncode == 0, done.stderr[-2_000:]
        return folder / "bin"

    return install


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
