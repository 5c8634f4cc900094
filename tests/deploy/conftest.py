"""Environments in which the wheel is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.deploy.wheels import Install, build_wheel, new_environment, pip


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"))


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
