"""Has TLC follow recorded histories: see `spec/Trace.tla`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.spec.runs.commit import COMMIT_INVARIANTS
from tests.spec.tlc import STATES, VIOLATED, VIOLATED_PROPERTY, children_cpu_s, search
from tests.spec.traces import Translated
from tests.spec.values import written

MODULE = "Trace"
DATA_MODULE = "Recorded"
# Constants of Commit.tla: all that clients and servers may do.
ALLOWED: Mapping[str, object] = {
    "Acks": True,
    "PlainSends": True,
    "Undercounts": False,
    "BothAsked": True,
    "Expiry": True,
    "Forgetting": False,
    "GroupCommits": True,
    "Mistake": "none",
}
FARTHEST = re.compile(r'^<<"farthest", (\d+), (\d+)>>', re.M)
AT_THE_END = "NeverAtTheEnd"
IS_OF_COMMIT = "IsOfCommit"


class Followed(NamedTuple):
    """Finding of TLC about a history.

    Attributes:
        refused: the place of the record that no behaviour has next; None: all of it is a behaviour.
        violated: the invariant or the property of Commit.tla that does not hold; "": all hold.
        states: how many different ones were seen, of all histories of the search.
        cpu_s: of TLC, likewise.
        output: all that TLC printed.
    """

    refused: int | None
    violated: str
    states: int
    cpu_s: float
    output: str


def follow(tlc: Path, history: Translated, directory: Path) -> Followed:
    """Follow a history to its end, and check the invariants of Commit.tla in each state.

    Each step has to be one of Commit.tla.

    Args:
        directory: for files that are not needed afterwards.
    """
    checks = [f"INVARIANT {name}" for name in (*COMMIT_INVARIANTS, AT_THE_END)]
    found = _search(tlc, [history], directory, [*checks, f"PROPERTY {IS_OF_COMMIT}"])[0]
    is_refuted = found.violated == AT_THE_END
    return found._replace(violated="" if is_refuted else found.violated)


def follow_all(tlc: Path, histories: Sequence[Translated], directory: Path) -> list[Followed]:
    """Follow several histories in one search, each as far as it goes.

    Args:
        histories: with as many clients, steps and transactions.
        directory: for files that are not needed afterwards.
    """
    return _search(tlc, histories, directory, [])


def _search(
    tlc: Path, histories: Sequence[Translated], directory: Path, checks: Sequence[str]
) -> list[Followed]:
    (directory / f"{DATA_MODULE}.tla").write_text(_data(histories))
    before_s = children_cpu_s()
    output = search(tlc, MODULE, _configuration(histories, checks), directory).stdout
    cpu_s = children_cpu_s() - before_s
    violated, states = VIOLATED.search(output), STATES.search(output)
    farthest = {int(number): int(at) for number, at in FARTHEST.findall(output)}
    if states is None or set(farthest) != set(range(1, len(histories) + 1)):
        raise RuntimeError(output)
    found = []
    for number, history in enumerate(histories, 1):
        at = farthest[number]
        name = violated[1] if violated else ""
        if VIOLATED_PROPERTY in output or f"Action property {IS_OF_COMMIT}" in output:
            name = IS_OF_COMMIT
        refused = at - 1 if at <= len(history.records) else None
        found.append(Followed(refused, name, int(states[1]), cpu_s, output))
    return found


def _data(histories: Sequence[Translated]) -> str:
    constants = histories[0].constants
    names = constants["BrokerOf"]
    places = " @@ ".join(f"{written(name)} :> {written(one)}" for name, one in names.items())
    lines = [f"---- MODULE {DATA_MODULE} ----", "EXTENDS TLC, Integers"]
    lines += [f"BrokerOf == {places}", "Histories == <<"]
    lines.append(",\n".join(_sequence(one.records) for one in histories))
    lines += [">>", "===="]
    return "\n".join(lines) + "\n"


def _sequence(records: Sequence[Mapping[str, Any]]) -> str:
    return "<<\n" + ",\n".join(written(dict(record)) for record in records) + "\n>>"


def _configuration(histories: Sequence[Translated], checks: Sequence[str]) -> str:
    values: dict[str, Any] = {**ALLOWED, **histories[0].constants}
    for name in ("Steps", "Crashes", "Announcements"):
        values[name] = max(one.constants[name] for one in histories)
    del values["BrokerOf"]
    lines = ["SPECIFICATION TraceSpec", "CONSTANTS"]
    lines += [f"  {name} = {written(value)}" for name, value in values.items()]
    lines += ["CONSTRAINT Farthest", *checks, "CHECK_DEADLOCK FALSE"]
    return "\n".join(lines) + "\n"
