"""A search by TLC: a module, values for its constants, and what has to be found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Constants = Mapping[str, object]


class Run(NamedTuple):
    """A search by TLC.

    Attributes:
        name: on the command line and in the results.
        module: of spec/.
        constants: values as TLA+ writes them; a string gets quotes, unless it is a set.
        invariants: what is checked in each state.
        finds: the invariant or the property that has to be violated, or "".
        mistake: what is planted, or "none".
        constraint: a formula; states that violate it are not searched.
        has_symmetry: the module names values that may be exchanged.
        is_small: `make test-long` has it.
        properties: what is checked in each history. It goes without symmetry and constraint, since
            TLC would miss violations. The specification is then `LiveSpec`, which adds fairness.
    """

    name: str
    module: str
    constants: Constants
    invariants: tuple[str, ...]
    finds: str = ""
    mistake: str = "none"
    constraint: str = ""
    has_symmetry: bool = False
    is_small: bool = False
    properties: tuple[str, ...] = ()

    def configuration(self) -> str:
        """Return the text of TLC's configuration file."""
        values = {**self.constants, "Mistake": f'"{self.mistake}"'}
        lines = [f"SPECIFICATION {'LiveSpec' if self.properties else 'Spec'}", "CONSTANTS"]
        lines += [f"  {name} = {_written(value)}" for name, value in values.items()]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        lines += [f"PROPERTY {name}" for name in self.properties]
        if self.has_symmetry:
            lines.append("SYMMETRY Symmetry")
        if self.constraint:
            lines.append(f"CONSTRAINT {self.constraint}")
        # The clients' steps are bounded, so that every history ends some day.
        lines.append("CHECK_DEADLOCK FALSE")
        return "\n".join(lines) + "\n"


def situation(run: Run, formula: str) -> Run:
    """Return the run that has to refute a formula, which says that a situation never arises."""
    module = run.module.lower()
    return run._replace(name=f"{module}: {formula}", invariants=(formula,), finds=formula)


def live(run: Run, *properties: str, name: str = "progress", mistake: str = "") -> Run:
    """Return a run that checks properties of histories.

    Args:
        mistake: if given, it is planted, and the property, a single one, has to be violated.
    """
    return run._replace(
        name=f"{run.module.lower()}: {mistake or name}",
        invariants=(),
        properties=properties,
        finds=properties[0] if mistake else "",
        mistake=mistake or run.mistake,
        has_symmetry=False,
    )


def _written(value: object) -> str:
    return str(value).upper() if isinstance(value, bool) else str(value)
