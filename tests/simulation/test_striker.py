"""Faults strike in their own steps, in whatever order clients come to these."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.short.faults import Striker
from tests.simulation.short.script import Fault


class Due:
    """A world that keeps which faults fell due."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.loop = SimpleNamespace(call_later=self._call_later)

    def _call_later(self, delay_s: float, strike: Any, fault: Fault, *, context: Any) -> None:
        self.numbers.append(fault.number)


@pytest.mark.parametrize(
    ("steps", "begun", "due"),
    [
        pytest.param([1, 2, 3], [1, 2, 3], [[10], [20, 21], [30]], id="in order"),
        # They struck at once, all of them, when any client was at its last step.
        pytest.param([1, 2, 3], [3, 1, 2], [[30], [10], [20, 21]], id="in any order"),
        pytest.param([1, 2, 3], [2, 2], [[20, 21], []], id="a step begun twice"),
        pytest.param([1, 3], [3, 1], [[20, 21, 30], [10]], id="a step left out"),
        pytest.param([1, 2], [1, 2], [[10], [20, 21]], id="nothing behind it"),
    ],
)
def test_a_fault_belongs_to_its_step(
    steps: list[int], begun: list[int], due: list[list[int]]
) -> None:
    faults = tuple(
        Fault(number, step, 0.0, "crash", {})
        for number, step in [(10, 1), (20, 2), (21, 2), (30, 3)]
    )
    world: Any = Due()
    striker = Striker(world, faults, steps)
    for number, expected in zip(begun, due, strict=True):
        world.numbers.clear()
        striker.step_begins(number)
        assert world.numbers == expected
