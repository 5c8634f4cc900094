"""Every mutant can be made, and a few of them are tried whole."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.mutants import testing
from tests.mutants.baseline import Baseline
from tests.mutants.catalogue import BY_NAME, CATALOGUE
from tests.mutants.histories import LONG_EVERY, history
from tests.mutants.mutant import ROOT, TESTS_OF, Mutant, MutantFailed
from tests.mutants.operations import Compare, Insert, LeaveOut, Operation, Put
from tests.mutants.overlay import overlay
from tests.mutants.report import report
from tests.mutants.simulating import Simulated
from tests.mutants.testing import CannotTest, nearest_first, run_tests
from tests.mutants.trial import Budget, Trial, Verdict, try_mutant

# Enough for a mistake that shows in nearly every history.
_HISTORIES = 10
_PRODUCERS = "magnetar_broker.transactions.producers"
_SOUND = Mutant(
    "sound",
    f"{_PRODUCERS}:check_sequence",
    Put("next_expected == sequence_id", "sequence_id == next_expected"),
    "None: it means the same.",
)


@pytest.fixture(scope="module")
def baseline() -> Baseline:
    made = Baseline()
    made.record(_HISTORIES, 1)
    return made


def test_every_mutant_can_be_made() -> None:
    failed = []
    for mutant in CATALOGUE:
        try:
            assert mutant.mutated
        except MutantFailed as error:
            failed.append(str(error))
    assert not failed, "\n".join(failed)


def test_what_mutants_say_of_themselves() -> None:
    assert max(Counter(one.name for one in CATALOGUE).values()) == 1
    assert {one.component for one in CATALOGUE} == set(TESTS_OF)
    for mutant in CATALOGUE:
        assert mutant.mistake.endswith(".")
        assert mutant.tests_folder.is_dir()
        assert all((ROOT / test).exists() for test in mutant.tests), mutant.name


@pytest.mark.parametrize(
    ("function", "operation", "why"),
    [
        ("magnetar_broker.nowhere:f", LeaveOut("x"), "there is no module magnetar_broker.nowhere"),
        (
            f"{_PRODUCERS}:Producers.nothing",
            LeaveOut("x"),
            f"function Producers.nothing of {_PRODUCERS} is missing",
        ),
        (
            f"{_PRODUCERS}:check_sequence",
            LeaveOut("self.nothing(...)"),
            f"in function check_sequence of {_PRODUCERS}, `self.nothing(...)` matches 0 places",
        ),
        (f"{_PRODUCERS}:check_sequence", Put("1", "sequence_id"), r"matches \d+ places"),
        (
            f"{_PRODUCERS}:check_sequence",
            Compare("sequence_id == next_expected", "=="),
            "nothing is changed",
        ),
    ],
)
def test_a_mutant_that_cannot_be_made_says_why(
    function: str, operation: Operation, why: str
) -> None:
    mutant = Mutant("wrong", function, operation, "It is none.")
    pattern = f"tests/mutants: mutant wrong: .*{why if chr(92) in why else re.escape(why)}"
    with pytest.raises(MutantFailed, match=pattern):
        _ = mutant.mutated


def test_the_sources_stay_as_they_are() -> None:
    mutant = BY_NAME["gap-accepted"]
    before = mutant.source.read_text()
    with overlay(mutant) as folder:
        copy = folder / "magnetar_broker" / "transactions" / "producers.py"
        assert copy.read_text() == mutant.mutated.text != before
        assert not list(copy.parent.glob("__pycache__/producers.*"))
    assert mutant.source.read_text() == before
    assert not folder.exists()


def test_long_histories_are_among_the_short_ones() -> None:
    kinds = Counter(history(number).kind for number in range(4 * LONG_EVERY))
    assert kinds["short"] == 4 * (LONG_EVERY - 1)
    assert kinds["long"] == 2
    assert len({history(number) for number in range(1_000)}) == 1_000


def test_the_nearest_tests_come_first() -> None:
    names = [one.name for one in nearest_first(BY_NAME["first-writer-order-only"])]
    assert names[0] == "test_order.py"
    assert len(names) == len(set(names)) > 10


def test_the_simulation_finds_a_gross_mistake(baseline: Baseline) -> None:
    trial = try_mutant(
        BY_NAME["counted-discarded"],
        baseline,
        Budget(cpu_seconds=60.0, test_seconds=0),
    )
    assert trial.verdict is Verdict.SIMULATION
    assert trial.is_active
    assert trial.simulated is not None
    assert trial.simulated.histories <= _HISTORIES


def test_what_crashes_at_once_is_told_apart(baseline: Baseline) -> None:
    budget = Budget(cpu_seconds=60.0, test_seconds=0)
    gross = Mutant(
        "gross",
        "magnetar_broker.topics.topics:Topics.__init__",
        Insert("1 // 0"),
        "The broker cannot start.",
    )
    trial = try_mutant(gross, baseline, budget)
    assert trial.simulated is not None
    assert trial.simulated.everywhere
    assert "1 of these crash at once" in "\n".join(report([trial], baseline))
    subtle = try_mutant(BY_NAME["counted-discarded"], baseline, budget)
    assert subtle.simulated is not None
    assert not subtle.simulated.everywhere


def test_a_unit_test_finds_what_no_history_comes_to() -> None:
    trial = try_mutant(
        BY_NAME["abort-forgets-sequence"], Baseline(), Budget(cpu_seconds=0, test_seconds=300)
    )
    assert trial.verdict is Verdict.TESTS
    assert trial.tested is not None
    assert trial.tested.found is not None
    assert trial.tested.found.startswith("tests/coordinator/test_named_sequences.py::")


def test_what_means_the_same_is_inert(baseline: Baseline) -> None:
    trial = try_mutant(_SOUND, baseline, Budget(cpu_seconds=5.0, test_seconds=0))
    assert trial.verdict is Verdict.INERT
    assert trial.simulated is not None
    assert trial.simulated.reached
    assert trial.simulated.histories > _HISTORIES
    lines = list(report([trial], baseline))
    assert f"sound: {_SOUND.mistake}" in lines
    assert "1 mutants: 1 inert" in lines


def test_what_nobody_can_see_is_counted_by_itself() -> None:
    mutant = replace(_SOUND, unseen_because="it means the same.")
    active = Simulated(reached=3, histories=3, cpu_seconds=1.0, active="short 0")
    trial = Trial(mutant=mutant, simulated=active, tested=None)
    assert trial.verdict is Verdict.NOBODY
    assert not trial.survives
    assert not trial.contradicts
    lines = list(report([trial], Baseline()))
    assert "1 mutants: 1 seen by nobody" in lines
    assert "0 active in the simulation, which found 0 of them" in lines


def test_the_catalogue_is_told_when_somebody_sees_it() -> None:
    mutant = replace(_SOUND, unseen_because="it means the same.")
    found = Simulated(reached=3, histories=3, cpu_seconds=1.0, found="short 0", failure="no")
    trial = Trial(mutant=mutant, simulated=found, tested=None)
    assert trial.verdict is Verdict.SIMULATION
    assert trial.contradicts
    lines = list(report([trial], Baseline()))
    assert "sound: somebody sees it, so this is wrong: it means the same." in lines


@pytest.mark.parametrize(
    ("simulated", "verdict"),
    [
        (Simulated(reached=0, histories=0, cpu_seconds=0.0), Verdict.UNREACHED),
        (Simulated(reached=1, histories=1, cpu_seconds=1.0), Verdict.INERT),
        (Simulated(reached=1, histories=1, cpu_seconds=1.0, active="short 0"), Verdict.UNSEEN),
        (None, Verdict.UNTESTED),
    ],
)
def test_who_survives_is_told_why(simulated: Simulated | None, verdict: Verdict) -> None:
    trial = Trial(mutant=_SOUND, simulated=simulated, tested=None)
    assert trial.verdict is verdict
    assert trial.survives


def test_a_test_that_fails_by_chance_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that takes too long on a busy machine, or fails without the mistake, too."""
    slow, wrong, right = (f"tests/broker/test_order.py::test_{one}" for one in "abc")
    # By test: whether it fails among the others, alone, and without the mistake.
    fails = {slow: (True, False, False), wrong: (True, True, True), right: (True, True, False)}

    def answer(what: list[str], passed_over: list[str], folder: Path | None, *_: object) -> str:
        if what[0] in fails:
            alone, sound = fails[what[0]][1:]
            return f"FAILED {what[0]} - AssertionError" if (alone if folder else sound) else ""
        name = next(one for one in fails if one not in passed_over)
        return f"FAILED {name} - AssertionError"

    monkeypatch.setattr("tests.mutants.testing._pytest", answer)
    mutant = BY_NAME["first-writer-order-only"]
    with overlay(mutant) as folder:
        tested = run_tests(mutant, folder, 60.0)
    assert tested.found == right


def test_mistakes_are_found_by_tests_that_share_servers_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test of such folders had run, since they were marked for a plugin that was left out."""
    mutant = BY_NAME["leaving-repeats-a-claim"]
    nearest = ROOT / "tests" / "cluster" / "test_host_state.py"
    monkeypatch.setattr(testing, "nearest_first", lambda _: [nearest])
    with overlay(mutant) as folder:
        assert "does_not_repeat_a_claim" in (run_tests(mutant, folder, 600).found or "")


def test_what_cannot_run_is_not_taken_for_a_mistake_that_nobody_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant = BY_NAME["leaving-repeats-a-claim"]
    monkeypatch.setattr(testing, "nearest_first", lambda _: [ROOT / "tests" / "nowhere.py"])
    with overlay(mutant) as folder, pytest.raises(CannotTest, match="status 4"):
        run_tests(mutant, folder, 60)
