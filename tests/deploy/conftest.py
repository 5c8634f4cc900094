"""The wheel and the sdist, and environments in which the wheel is installed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import release
from tests.deploy.wheels import (
    EPOCH_S,
    Install,
    copy_sources,
    install_wheel,
    new_environment,
    pip,
)

# Whether a package index answers is asked with a package that the SDK needs.
SMALL_PACKAGE = "hpack"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the sources, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("build")
    release.build(copy_sources(folder / "source"), folder / "built", epoch_s=EPOCH_S)
    return folder / "built"


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that TESTED_WHEEL names, or one that is built from the sources.

    Skips where no package index answers: nothing could be installed beside it.
    """
    folder = tmp_path_factory.mktemp("index")
    done = pip(new_environment(folder), "--dry-run", "--no-deps", SMALL_PACKAGE)
    if done.returncode != 0:
        pytest.skip(f"no package index answers: {done.stderr.strip().splitlines()[-1]}")
    if named := os.environ.get("TESTED_WHEEL"):
        return Path(named)
    built: Path = request.getfixturevalue("built")
    (made,) = built.glob("*.whl")
    return made


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Install:
    """Installs the wheel with an extra into an environment of the test."""
    return partial(install_wheel, wheel, tmp_path / "environment")


@pytest.fixture(scope="session")
def server_programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the servers, which tests share."""
    return install_wheel(wheel, tmp_path_factory.mktemp("server") / "environment", "[server]")
