"""Profiles of each process: `--profile DIRECTORY` writes stacks, and a page of the top.

py-spy looks at a process from outside 200 times a second, and writes which functions of Python were
running. What C code does, counts for the function that calls it; what threads do that have no
Python, as those of RocksDB and gRPC, is not seen, and so the page says which part of a process's
time the thread of its event loop took.

The files are stacks, one a line with the number of its samples: speedscope.app and flamegraph.pl
draw them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quick.child import ChildFailed, lines_of
from benchmarks.quick.recording import stacks_file
from benchmarks.quick.work import WORKLOADS
from magnetar_cli.progress import JobProgress

# Of a round's work, so that each profile has a thousand samples or more.
ROUNDS_OF_WORK = 10
FUNCTIONS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """A function's part of the samples of a process.

    Attributes:
        own: while it was running itself, or C code that it called.
        total: while it was running, or something that it called.
    """

    function: str
    own: float
    total: float


def tops(stacks: str) -> list[Top]:
    """The functions of a file of stacks, by their own part, the largest first."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, samples = line.rpartition(" ")
        functions = stack.split(";")
        own[functions[-1]] += int(samples)
        # Once, although it may call itself.
        for function in {*functions}:
            total[function] += int(samples)
    count = own.total()
    found = [
        Top(function=function, own=own[function] / count, total=samples / count)
        for function, samples in total.items()
    ]
    return sorted(found, key=lambda one: (-one.own, -one.total, one.function))


def profile(names: Sequence[str], directory: Path, *, share: float, data_dir: Path | None) -> str:
    """Record workloads, each on servers of its own; return the page, which is in a file too.

    Raises:
        ChildFailed: py-spy cannot be used, or a workload failed.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    profiler = shutil.which("py-spy", path=path)
    if profiler is None:
        raise ChildFailed("there is no py-spy: `make install` installs it")
    directory.mkdir(parents=True, exist_ok=True)
    sections = []
    with JobProgress("profiled", "workloads") as progress:
        for number, name in enumerate(names):
            progress.show(number, len(names), name)
            arguments = [name, str(directory.absolute()), "--profiler", profiler]
            arguments += ["--share", str(share * ROUNDS_OF_WORK)]
            if data_dir is not None:
                arguments += ["--data-dir", str(data_dir.absolute())]
            with closing(lines_of("benchmarks.quick.recording", *arguments)) as lines:
                parts = json.loads("".join(lines))
            stacks = {part: stacks_file(directory, name, part).read_text() for part in parts}
            sections.append(section(name, parts, stacks))
        progress.show(len(names), len(names))
    page = "\n".join(sections)
    (directory / "top.md").write_text(page)
    return page


def section(name: str, parts: Mapping[str, float], stacks: Mapping[str, str]) -> str:
    """A workload's part of the page, in Markdown.

    Args:
        parts: of each process's processor time, that of its event loop's thread.
        stacks: of each process.
    """
    lines = [f"## {name}: {WORKLOADS[name].about}", ""]
    for process, part in parts.items():
        lines += [
            f"The {process}, whose event loop's thread takes {part:.0%} of its processor time:",
            "",
            "| own % | total % | function |",
            "|---:|---:|---|",
            *(
                f"| {one.own * 100:.1f} | {one.total * 100:.1f} | {one.function} |"
                for one in tops(stacks[process])[:FUNCTIONS_SHOWN]
            ),
            "",
        ]
    return "\n".join(lines)
