"""examples/spark_notebook.py: it runs from top to bottom, and shows what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import ROOT, environment_of_a_user
from tests.system.processes import Servers

from magnetar import blocking

pytestmark = pytest.mark.chaos

# Its last lines, but for the days and the table.
SHOWN = """\
the query failed after batch 1: no price for chai
after the failure: 80 bills of 80 orders
after the restart: 120 bills of 120 orders
counted: 180 cups in 10 messages
batch 2 written again: 180 cups in 10 messages
batch 0: 40 orders, 46 offsets behind
batch 1: 40 orders, 23 offsets behind
batch 2: 40 orders, 0 offsets behind
"""


def run(servers: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "spark_notebook.py")],
        cwd=directory,
        env={**environment_of_a_user(), "MAGNETAR_BROKER": servers, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.soak
def test_the_notebook(java: None, servers: Servers, tmp_path: Path) -> None:
    done = run(servers.address, tmp_path)
    assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
    assert "day 3 does not count: the till broke" in done.stdout
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["tea", "orders", "cups", "transactions"],
        ["black", "39", "58", "3"],
        ["chai", "5", "8", "1"],
        ["green", "38", "57", "3"],
        ["mint", "38", "57", "3"],
    ]
    assert done.stdout.endswith(SHOWN), done.stdout
    with blocking.connect(servers.address) as client:
        (bills,) = (
            one.topic for one in client.admin.topics.list() if one.topic.startswith("bills-")
        )
        found = [message for partition in range(2) for message in client.read(bills, partition)]
    assert sorted(json.loads(one.value)["number"] for one in found) == list(range(120))


def test_the_cells_are_what_editors_expect() -> None:
    text = (ROOT / "examples" / "spark_notebook.py").read_text()
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    assert cells[0] == ""
    for cell in cells[1:]:
        head, _, body = cell.partition("\n")
        if head == " [markdown]":
            assert all(line.startswith("#") for line in body.splitlines() if line), body
        else:
            assert head == ""
            compile(body, "cell", "exec")
