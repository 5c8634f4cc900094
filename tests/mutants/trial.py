"""Try a mutant against the simulation and the tests of its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from tests.mutants.baseline import Baseline
from tests.mutants.mutant import Mutant
from tests.mutants.overlay import overlay
from tests.mutants.simulating import Simulated, simulate
from tests.mutants.testing import Tested, run_tests


class Verdict(Enum):
    """What is known of a mutant."""

    SIMULATION = "found by the simulation"
    TESTS = "found by tests"
    # It did something else, and no checker complained: a checker is missing.
    UNSEEN = "active, unseen"
    # Every history took the same steps, although it came to the changed lines.
    INERT = "inert"
    # No history came to the changed lines: the workload is missing.
    UNREACHED = "unreached"
    # The catalogue says why neither simulation nor test could find it.
    NOBODY = "seen by nobody"
    # The simulation never runs this code, and the tests found nothing.
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of it; `simulated` and `tested` are None for what was not tried."""

    mutant: Mutant
    simulated: Simulated | None
    tested: Tested | None

    @property
    def is_active(self) -> bool:
        return self.simulated is not None and self.simulated.active is not None

    @property
    def verdict(self) -> Verdict:
        if self.simulated is not None and self.simulated.found is not None:
            return Verdict.SIMULATION
        if self.tested is not None and self.tested.found is not None:
            return Verdict.TESTS
        if self.mutant.unseen_because:
            return Verdict.NOBODY
        if self.simulated is None:
            return Verdict.UNTESTED
        if self.is_active:
            return Verdict.UNSEEN
        return Verdict.INERT if self.simulated.reached else Verdict.UNREACHED

    @property
    def survives(self) -> bool:
        return self.verdict not in (Verdict.SIMULATION, Verdict.TESTS, Verdict.NOBODY)

    @property
    def contradicts(self) -> bool:
        """The catalogue says that nobody sees it, and somebody did."""
        found = self.verdict in (Verdict.SIMULATION, Verdict.TESTS)
        return found and bool(self.mutant.unseen_because)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.mutant.name,
            "component": self.mutant.component,
            "function": self.mutant.function,
            "mistake": self.mutant.mistake,
            "verdict": self.verdict.value,
            "active": self.is_active,
            "survives": self.survives,
            "simulation": asdict(self.simulated) if self.simulated is not None else None,
            "tests": asdict(self.tested) if self.tested is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of one mutant.

    Attributes:
        cpu_seconds: of processor time for the simulation; 0: it is left out.
        test_seconds: by the clock, for tests; 0: they are left out.
        always_tests: run the tests of what the simulation has found, too.
    """

    cpu_seconds: float
    test_seconds: float
    always_tests: bool = False


def try_mutant(mutant: Mutant, baseline: Baseline, budget: Budget) -> Trial:
    """Raises: MutantFailed, as Mutant.mutated."""
    with overlay(mutant) as folder:
        simulated: Simulated | None = None
        if budget.cpu_seconds and mutant.is_simulated:
            simulated = simulate(mutant, baseline, folder, budget.cpu_seconds)
        tested: Tested | None = None
        found = simulated is not None and simulated.found is not None
        if budget.test_seconds and (budget.always_tests or not found):
            tested = run_tests(mutant, folder, budget.test_seconds)
    return Trial(mutant=mutant, simulated=simulated, tested=tested)
