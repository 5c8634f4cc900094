"""The newcomer's way: pages about Spark, followed to the letter in a new environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.deploy.wheels import ROOT, TIMEOUT_S, Install, environment, run

from magnetar_spark.jobs.java import missing_java

pytestmark = pytest.mark.soak

SERVERS = "magnetar standalone --data-dir ./data"
DEFAULT_ADDRESS = "127.0.0.1:6650"
# Between fences, or indented by four.
BLOCK = re.compile(r"```(\w*)\n(.*?)```|((?:^ {4}[^\n]*\n|^\n(?= {4}))+)", re.MULTILINE | re.DOTALL)


@contextmanager
def servers(programs: Path, directory: Path) -> Iterator[str]:
    """As the pages start them, at a free port; yields their address."""
    ready = directory / "ready.json"
    command = [str(programs / "magnetar"), *SERVERS.split()[1:]]
    with subprocess.Popen(
        [*command, "--port", "0", "--ready-file", str(ready)],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as standalone:
        try:
            assert standalone.stdout is not None
            assert standalone.stdout.readline().startswith("ready: ")
            yield json.loads(ready.read_text())["broker"]["address"]
        finally:
            standalone.terminate()
        assert standalone.wait(TIMEOUT_S) == 0


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The page's indented commands and its programs, in order: language and text."""
    for match in BLOCK.finditer(page):
        language, program, commands = match.groups()
        if commands is not None:
            yield "sh", re.sub(r"^ {4}", "", commands, flags=re.M)
        else:
            yield language, program


def test_the_pages_about_spark(install: Install, tmp_path: Path) -> None:
    without = missing_java()
    if without is not None:
        pytest.skip(without)
    begin = (ROOT / "docs" / "spark.md").read_text()
    assert "`pip install 'magnetar[server,spark]'`" in begin
    assert f"`{SERVERS}`" in begin
    programs = install("[server,spark,tables]")
    with servers(programs, tmp_path) as address:
        (_, program), *_ = (one for one in blocks(begin) if one[0] == "python")
        program = program.replace(DEFAULT_ADDRESS, address)
        printed = run(programs / "python", "-c", program, cwd=tmp_path, timeout_s=900)
        assert "HELLO" in printed
        assert "WORLD" in printed
        follow_jobs(programs, tmp_path, address)


def follow_jobs(programs: Path, directory: Path, address: str) -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text()
    assert SERVERS in page
    followed = []
    for language, text in blocks(page):
        text = text.replace(f"{SERVERS}\n", "").replace("DIRECTORY", str(directory / "offloaded"))
        if language == "sh":
            followed.append(text)
            commands(programs, directory, address, text)
        elif language == "python":
            run(programs / "python", "-c", text, cwd=directory)
    # All jobs but the restore are in blocks.
    for job in ("audit", "offload", "tables", "transform"):
        assert any(f"magnetar pipeline {job} " in one for one in followed)
    (restore,) = re.findall(r"`(magnetar pipeline restore DIRECTORY/[^`]+)`", page)
    restore = restore.replace("DIRECTORY", str(directory / "offloaded"))
    commands(programs, directory, address, restore)
    shown = commands(programs, directory, address, "magnetar consume bills --until-end")
    assert [json.loads(one) for one in shown.splitlines()] == [{"id": 1, "total": 2.68}]
    shown = commands(programs, directory, address, "magnetar consume orders-again --until-end")
    assert json.loads(shown)["item"] == "tea"


def commands(programs: Path, directory: Path, address: str, text: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=directory,
        env={
            **environment(),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "MAGNETAR_BROKER": address,
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, (text, done.stdout[-2_000:], done.stderr[-3_000:])
    return done.stdout
