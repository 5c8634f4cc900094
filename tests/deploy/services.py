"""The services of compose files, as Compose itself reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = shutil.which("docker-compose", path=str(Path(sys.executable).parent))


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
