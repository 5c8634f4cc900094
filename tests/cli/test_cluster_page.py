"""docs/cluster.md, command by command, against a real cluster.

Who has which shard follows from the names of shards and members, so that the page and every other
run agree. Addresses, epochs and times differ.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running_cluster import Up, skip_without_programs, up
from tests.waiting import wait_until

pytestmark = pytest.mark.chaos

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
ANYTHING = "..."
DONE = "status of the command:"
# Of tables; the others differ from run to run.
COMPARED = ("SHARD", "OWNER", "MOVES TO", "PINNED TO", "KIND", "MEMBER", "SHARDS", "STATE")
DIFFERS = re.compile(r"(?<=id )\d+|(?<=in )[\d.]+ s: [\d,]+")
# They change nothing, and what they show may take a moment.
REPEATED = re.compile(r"magnetar cluster (members|shards)|sort |wc ")
# Longer than people use, for machines that do much else; the shards move all the same.
LEASE_MS = "5000"
PATIENCE_S = 90


def commands_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Commands and the lines that they print."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, [line.rstrip() for line in output.rstrip().splitlines()]


class Shell:
    """One shell for all commands, as a person has it: jobs and variables stay."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["/bin/bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(directory / "errors").open("w"),
            text=True,
            cwd=directory,
            env=environ,
        )

    def run(self, command: str) -> list[str]:
        """The lines that a command prints; those of jobs behind it go elsewhere."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\necho '{DONE}' $?\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                return lines
            lines.append(line.rstrip())
        raise AssertionError(f"the shell ended in {command}")

    def close(self) -> None:
        self.run("kill $(jobs -p); wait")
        self.process.communicate()


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def comparable(lines: list[str]) -> list[list[str]]:
    """What has to be as the page says: some columns of a table, or lines."""
    header = cells(lines[0]) if lines else []
    chosen = [place for place, one in enumerate(header) if one in COMPARED]
    if not chosen:
        return [[DIFFERS.sub("", line)] for line in lines]
    return [
        [row[place] for place in chosen] if len(row) == len(header) else row
        for row in map(cells, lines)
    ]


def alike(found: list[str], wanted: list[str]) -> bool:
    """Whether lines say the same; lines of dots on the page stand for any."""
    rest = comparable(found)
    may_skip = False
    for line in wanted:
        if line == ANYTHING:
            may_skip = True
            continue
        (row,) = comparable([wanted[0], line])[1:]
        if may_skip and row in rest:
            rest = rest[rest.index(row) :]
        if not rest or rest.pop(0) != row:
            return False
        may_skip = False
    return may_skip or not rest


@pytest.mark.soak
def test_the_page(tmp_path: Path) -> None:
    skip_without_programs()
    directory = tmp_path / "data"
    with up(tmp_path, "--lease-ms", LEASE_MS, "--data-dir", str(directory)) as cluster:
        work = tmp_path / "work"
        work.mkdir()
        scripts = Path(sys.executable).parent
        shell = Shell(work, cluster.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"})
        try:
            assert all_as_written(shell, cluster, directory) > 12
        finally:
            shell.close()


def all_as_written(shell: Shell, cluster: Up, directory: Path) -> int:
    ran = 0
    for command, wanted in commands_of(PAGE.read_text()):
        if command == "magnetar cluster up":
            continue  # it runs
        if command.startswith(". "):
            command = f". {directory / 'environment'}"
        if command.startswith("kill -9 "):
            command = f"kill -9 {cluster.processes['broker-a'].pid}"
        found = shell.run(command)
        if not alike(found, wanted) and REPEATED.match(command):
            wait_until(lambda: alike(shell.run(command), wanted), PATIENCE_S)  # noqa: B023
        else:
            assert alike(found, wanted), (command, found, wanted)
        ran += 1
    return ran


SHARDS = ["SHARD     OWNER     EPOCH  PINNED TO", "broker-0  broker-a      7  -"]


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (SHARDS, True),
        ([SHARDS[0], "broker-0  broker-a     99  -"], True),
        ([SHARDS[0], "broker-0  broker-b      7  -"], False),
        ([SHARDS[0]], False),
        ([*SHARDS, "broker-1  broker-a      7  -"], False),
    ],
)
def test_the_comparison_of_tables_can_fail(found: list[str], same: bool) -> None:
    assert alike(found, SHARDS) is same
    assert alike(found, [SHARDS[0], ANYTHING])


def test_the_comparison_of_lines_can_fail() -> None:
    assert alike(["created a, id 7"], ["created a, id 9"])
    assert not alike(["created b, id 7"], ["created a, id 9"])
    assert alike(["a", "b", "c"], ["a", ANYTHING, "c"])
    assert alike(["a", "b", "c"], ["a", ANYTHING])
    assert not alike(["a", "b"], ["a", ANYTHING, "c"])
    assert not alike(["1999"], ["2000"])
