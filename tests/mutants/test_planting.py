"""A mutant is in the running process for a while."""

from __future__ import annotations

from contextlib import suppress

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.operations import FUNCTIONS
from tests.mutants.planting import function_of, planted

from magnetar_core.cuts.hybrid_clock import HybridClock


def test_a_function_makes_a_mistake_for_a_while() -> None:
    def heard() -> int:
        clock = HybridClock()
        taken_before(clock, 1 << 40, 0)
        return clock.last

    # Taken before the mistake is there, as by an import.
    taken_before = HybridClock.hear
    sound = heard()
    with planted("stamps-not-heard"):
        assert heard() == HybridClock().last != sound
    assert heard() == sound


def test_an_error_takes_the_mistake_out() -> None:
    code = HybridClock.hear.__code__
    with suppress(RuntimeError), planted("stamps-not-heard"):
        assert HybridClock.hear.__code__ is not code
        raise RuntimeError
    assert HybridClock.hear.__code__ is code


def test_functions_of_the_product_are_found() -> None:
    for mutant in CATALOGUE:
        if mutant.is_simulated and isinstance(mutant.mutated.definition, FUNCTIONS):
            function, name = function_of(mutant)
            assert function.__module__ == mutant.module, mutant.name
            assert mutant.qualified_name.startswith(name)
