"""docs/command_line.md names commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.test_optimized import EVERY

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()


def test_the_commands_that_it_names_exist() -> None:
    commands = {" ".join(path) for path in EVERY}
    named = set(re.findall(r"magnetar ((?:[a-z]+-)*[a-z]+(?: (?:[a-z]+-)*[a-z]+)?)", PAGE))
    assert named
    for one in named:
        # What follows may be the name of a topic.
        assert one in commands or one.split()[0] in commands, one
