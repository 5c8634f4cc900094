"""The wheel, and environments that have nothing else."""

from __future__ import annotations

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


def build_wheel(folder: Path) -> Path:
    """Build it from the source distribution, which is made from what git knows and nothing else.

    Skips where no package index answers.
    """
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
