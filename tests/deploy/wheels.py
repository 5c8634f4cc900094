"""The sources of a wheel, and environments that have nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from tests.docs.test_links import tracked

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
# Downloads and a busy machine.
INSTALL_S = 1_200
# The time of the files in wheels of tests: 2026-01-01.
EPOCH_S = 1_767_225_600

# Takes an extra, such as "[cli]"; returns the folder of programs.
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
        timeout=INSTALL_S,
    )


def copy_sources(folder: Path) -> Path:
    """Copy what git knows, changed files as they are now. Returns the folder."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def install_wheel(wheel: Path, folder: Path, extra: str = "", *packages: str) -> Path:
    """Install the wheel with what an extra needs, and other packages, into an environment.

    Returns:
        The folder of its programs.
    """
    python = folder / "bin" / "python"
    if not folder.exists():
        new_environment(folder)
    done = pip(python, f"{wheel}{extra}", *packages)
    assert done.returncode == 0, done.stderr[-2_000:]
    return folder / "bin"
