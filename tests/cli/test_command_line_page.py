"""docs/command_line.md: its commands run as they stand, also a second time."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.cli.running import MAGNETAR, Standalone
from tests.cli.test_optimized import EVERY

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
BLOCK = re.compile(r"```\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def printed(standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What each block prints, in a shell for all of them."""
    script = f'magnetar() {{ {shlex.join(MAGNETAR)} "$@"; }}\n'
    script += "".join(f"{block}echo end of block\n" for block in 2 * BLOCK.findall(PAGE))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=tmp_path_factory.mktemp("page"),
        env=standalone.environ | {"SHELL": "/bin/bash"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [part.splitlines() for part in done.stdout.split("end of block\n")[:-1]]


def test_what_is_sent_is_printed(printed: list[list[str]], standalone: Standalone) -> None:
    numbers, orders, *others = printed
    assert numbers == ["1", "2", "3"]
    assert orders == ["tea\t7", "coffee\t3"]
    assert printed[len(printed) // 2] == [*numbers, *numbers], "the second time"
    assert others
    copied = [
        (one["key"], one["value"])
        for one in map(json.loads, standalone.lines("consume", "copy", "--until-end", "--json"))
    ]
    # The second time it sends a file that has what the first time sent.
    once = [("tea", "7"), ("coffee", "3")]
    assert copied == once + 2 * once


def test_the_commands_that_it_names_exist() -> None:
    commands = {" ".join(path) for path in EVERY}
    named = set(re.findall(r"magnetar ((?:[a-z]+-)*[a-z]+(?: (?:[a-z]+-)*[a-z]+)?)", PAGE))
    assert named
    for one in named:
        # What follows may be the name of a topic.
        assert one in commands or one.split()[0] in commands, one
