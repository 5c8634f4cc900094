"""A mutant is tried with the histories that execute what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.baseline import Baseline, Ran
from tests.mutants.catalogue import BY_NAME
from tests.mutants.histories import LONG_EVERY, History, history, share
from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, Insert, LeaveOut, Operation, Put, ReturnEarly
from tests.mutants.overlay import overlay
from tests.mutants.reach import FURTHER_SEEDS_FROM, Reach, changed_lines, further, reach
from tests.mutants.simulating import simulate

_FILE = "broker/magnetar_broker/example.py"
_SOURCE = '''\
"""An example."""

LIMIT = 3


class Box:
    size: int = 1

    def put(self, thing: int) -> int:
        if thing > LIMIT:
            raise ValueError(
                "too much"
            )
        else:
            self.size += thing
        return thing

    def take(self) -> int:
        try:
            return self.size
        except KeyError:
            return 0
'''


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / _FILE
    path.parent.mkdir(parents=True)
    path.write_text(_SOURCE)
    for module in ("mutant", "reach"):
        monkeypatch.setattr(f"tests.mutants.{module}.ROOT", tmp_path)
    return path


def _mutant(function: str, operation: Operation) -> Mutant:
    return Mutant("example", f"magnetar_broker.example:{function}", operation, "It is one.")


@pytest.mark.parametrize(
    ("function", "operation", "lines"),
    [
        # A statement over several lines is one.
        ("Box.put", Put("'far too much'", "'too much'"), {11, 12, 13}),
        # The head of one with a body does not stand for the body.
        ("Box.put", Compare("thing > LIMIT", ">="), {10}),
        ("Box.put", LeaveOut("self.size += thing"), {15}),
        ("Box.take", Put("LookupError", "KeyError"), {21}),
        # What is only inserted belongs to the function around it.
        ("Box.put", Insert("self.size = 0", before="return thing"), set(range(10, 17))),
        ("Box.take", ReturnEarly("0"), set(range(19, 23))),
        # Of a name the functions that speak of it.
        ("LIMIT", Put("4", "3"), set(range(10, 17))),
        ("Box.size", Put("2", "1"), {*range(10, 17), *range(19, 23)}),
    ],
)
def test_an_operation_touches_lines(
    example: Path, function: str, operation: Operation, lines: set[int]
) -> None:
    touched = changed_lines(_mutant(function, operation))
    assert touched is not None
    assert touched.changed == {example: lines}


def _baseline(lines: dict[int, int]) -> Baseline:
    """One of four histories."""
    made = Baseline()
    made.ran = [Ran(history(number), "", None, 1.0) for number in range(4)]
    made.lines = {_FILE: lines}
    return made


def test_rare_ways_through_a_function_come_first(example: Path) -> None:
    mutant = _mutant("Box.put", Compare("thing > LIMIT", ">="))
    # All four come to the line; the third alone goes on into the branch.
    assert reach(mutant, _baseline({10: 0b1111, 11: 0b0100})).numbers == [2, 0, 1, 3]
    assert reach(mutant, _baseline({10: 0b0101})).numbers == [0, 2]
    assert reach(mutant, _baseline({11: 0b0101})).numbers == []


def test_what_imports_execute_concerns_every_history(example: Path) -> None:
    baseline = _baseline({})
    baseline.imported = {_FILE: {10}}
    assert len(reach(_mutant("Box.put", Compare("thing > LIMIT", ">=")), baseline).numbers) == 4


def test_further_histories_are_of_the_kinds_that_come_there() -> None:
    baseline = Baseline()
    kinds = [("short", "over", 1.0), ("short", "crowd", 0.1), ("long", "any", 9.0)]
    baseline.ran = [Ran(History(kind, of, 0), "", None, spent) for kind, of, spent in kinds]
    more = further(Reach([0, 1]), baseline)
    assert [next(more) for _ in range(3)] == [
        History("short", "crowd", FURTHER_SEEDS_FROM),
        History("short", "over", FURTHER_SEEDS_FROM),
        History("short", "crowd", FURTHER_SEEDS_FROM + 1),
    ]
    assert list(further(Reach([]), baseline)) == []


def test_long_histories_are_shared_by_all_processes() -> None:
    shares = [share(job, 2, 10 * LONG_EVERY) for job in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(10 * LONG_EVERY))
    for one in shares:
        assert sum(not history(number).is_short for number in one) == 5


def test_a_baseline_is_kept_and_knows_who_was_where(tmp_path: Path) -> None:
    baseline = Baseline()
    baseline.record(6, 2)
    assert [one.history for one in baseline.ran] == [history(number) for number in range(6)]
    file = "broker/magnetar_broker/transactions/producers.py"
    # Every history sends something.
    assert (1 << 6) - 1 in baseline.lines[file].values()
    path = tmp_path / "kept.json.gz"
    baseline.save(path)
    again = Baseline()
    assert again.load(path)
    assert (again.ran, again.lines, again.imported) == (
        baseline.ran,
        baseline.lines,
        baseline.imported,
    )
    alone = Baseline()
    alone.record(6, 1)
    assert [one.digest for one in alone.ran] == [one.digest for one in baseline.ran]
    # Elsewhere imports differ, and what is computed once in a process.
    assert alone.lines[file] == baseline.lines[file]


def test_what_no_history_reaches_costs_nothing() -> None:
    mutant = BY_NAME["counted-discarded"]
    baseline = Baseline()
    baseline.ran = [Ran(history(number), "", None, 1.0) for number in range(LONG_EVERY)]
    with overlay(mutant) as folder:
        simulated = simulate(mutant, baseline, folder, 60.0)
    assert (simulated.reached, simulated.histories, simulated.cpu_seconds) == (0, 0, 0.0)
