"""The sample of places is fixed, and each of its mutants can be made."""

from __future__ import annotations

from tests.mutants.sample import product_modules, sample


def test_a_seed_chooses_the_same_places() -> None:
    few = sample(20, 1)
    assert few == sample(20, 1)
    assert few == sample(40, 1)[:20]
    assert few != sample(20, 2)
    for mutant in few:
        assert mutant.mutated.text
    assert len({one.name for one in few}) == 20


def test_what_tools_have_written_is_left_out() -> None:
    names = {name for name, _ in product_modules()}
    assert "magnetar.client" in names
    assert "magnetar.blocking.client" not in names
    assert not any(".wire." in name for name in names)
