"""Runs TLC on a module of spec/."""

from __future__ import annotations

import re
import resource
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.spec.runs.run import Run

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "spec"
FOLDER = ROOT / ".venv/.tlc"

# What TLC prints.
VIOLATED = re.compile(r"^Error: Invariant (\w+) is violated", re.M)
VIOLATED_PROPERTY = "Error: Temporal properties were violated."
STATES = re.compile(r"^\d+ states generated, (\d+) distinct states found, (\d+) states left", re.M)
DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)\.", re.M)
STATE_OF_TRACE = re.compile(r"^State \d+: ", re.M)


class Finding(NamedTuple):
    """The result of a search.

    Attributes:
        violated: the invariant that a state violates, the property that a history violates, or "".
            TLC does not say which property it was, if it checked several: then all of them.
        is_complete: whether all states were seen, and violate nothing.
        states: how many different ones were seen.
        steps: on the shortest way to the violation, or to the farthest state. To the violation of
            a property, the steps of the history that TLC shows; its last ones may repeat for ever.
        cpu_s: of TLC.
        output: all that TLC printed.
    """

    violated: str
    is_complete: bool
    states: int
    steps: int
    cpu_s: float
    output: str

    def is_expected(self, run: Run) -> bool:
        """Whether a run found what it has to."""
        return self.violated == run.finds and self.is_complete == (run.finds == "")


def find_tlc() -> Path | None:
    """Fetch TLC if it is not there; return None without Java, after a line that says so.

    Raises:
        CalledProcessError: what was fetched has another checksum.
    """
    subprocess.run([str(ROOT / "tools/fetch_tlc.sh"), str(FOLDER)], check=True)
    program = FOLDER / "tlc.jar"
    return program if program.exists() else None


def check(tlc: Path, run: Run, directory: Path) -> Finding:
    """Search all states that a run can reach, the nearest ones first, and stop at a violation.

    Args:
        tlc: the archive with the program.
        run: what is checked.
        directory: for files that are not needed afterwards.
    """
    before_s = children_cpu_s()
    done = search(tlc, run.module, run.configuration(), directory)
    output = done.stdout
    found, states, depth = (one.search(output) for one in (VIOLATED, STATES, DEPTH))
    violated = found[1] if found else ""
    if VIOLATED_PROPERTY in output:
        violated = ", ".join(run.properties)
    steps = len(STATE_OF_TRACE.findall(output)) - 1 if violated else int(depth[1]) if depth else 0
    return Finding(
        violated=violated,
        is_complete=done.returncode == 0 and states is not None and int(states[2]) == 0,
        states=int(states[1]) if states else 0,
        steps=steps,
        cpu_s=children_cpu_s() - before_s,
        output=output,
    )


def search(
    tlc: Path, module: str, configuration: str, directory: Path
) -> subprocess.CompletedProcess[str]:
    """Run TLC on a module of spec/.

    Args:
        configuration: the text of TLC's configuration file.
        directory: for files that are not needed afterwards. The module may use modules in it.
    """
    file = directory / f"{module}.cfg"
    file.write_text(configuration)
    # One worker sees the states in a fixed order, so that each run finds the same.
    return subprocess.run(
        [
            # Most searches end before a better compiler would pay.
            "nice", "-n", "5", "java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={directory}", f"-DTLA-Library={directory}",
            "-cp", str(tlc), "tlc2.TLC",
            "-workers", "1", "-metadir", str(directory / "states"), "-nowarning",
            "-config", str(file), f"{module}.tla",
        ],
        cwd=SPEC,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def children_cpu_s() -> float:
    """Return the processor time of all processes that were started and have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
