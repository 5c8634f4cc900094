"""The services of compose files, as Compose itself reads them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def _compose() -> str | None:
    """Return Compose's program. The script that the package installs loses its exit status."""
    package = importlib.util.find_spec("compose")
    if package is None or package.origin is None:
        return None
    return shutil.which("docker-compose", path=str(Path(package.origin).parent))


COMPOSE = _compose()


def services_of(file: str) -> dict[str, Any]:
    """A file as Compose itself understands it, with all profiles."""
    if COMPOSE is None:
        pytest.skip("docker-compose comes with the extra `dev` on Linux x86-64")
    done = subprocess.run(
        [COMPOSE, "--file", file, "--profile", "*", "config", "--format", "json"],
        cwd=DEPLOY / "compose",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found
