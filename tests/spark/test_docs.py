"""docs/spark.md, Begin: the program runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import ROOT, environment_of_a_user
from tests.system.processes import Servers

pytestmark = pytest.mark.chaos


def test_the_quick_start(java: None, servers: Servers, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert "127.0.0.1:6650" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:6650", servers.address)],
        cwd=tmp_path,
        env=environment_of_a_user(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # Of a registration, by Spark's log.
    assert "replaced" not in done.stderr
    assert "HELLO" in done.stdout
    assert "WORLD" in done.stdout
