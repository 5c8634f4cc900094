"""A short history as data: who does what, what goes wrong, and under which settings.

A script is made from a seed, and from nothing else. Every part of one is a script, too: a step
whose premise is missing does nothing. That is what lets a failing one be shrunk.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a client does.

    Attributes:
        client: the process that does it; its steps of one task come one after the other.
        after: numbers of steps of others that have to be done before.
        closing: done when the faults are over and everything else is done.
    """

    number: int
    client: str
    verb: str
    arguments: dict[str, Any]
    task: int = 0
    pause_s: float = 0.0
    after: tuple[int, ...] = ()
    closing: bool = False

    def __str__(self) -> str:
        said = " ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        pause = f" after {self.pause_s:.3f} s" if self.pause_s else ""
        awaited = f" after steps {list(self.after)}" if self.after else ""
        closing = " at the end" if self.closing else ""
        who = f"{self.number:4} {self.client}.{self.task}"
        return f"{who} {self.verb} {said}{pause}{awaited}{closing}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, some time after a step has begun."""

    number: int
    step: int
    delay_s: float
    kind: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        said = " ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        when = f"{self.delay_s:.3f} s into {self.step}"
        return f"     fault {self.number}: {self.kind} {said}, {when}"


@dataclass(frozen=True, slots=True)
class Script:
    """
    Attributes:
        seed: of everything that chance decides while the script runs.
        scenarios: what it was made from.
        settings: of servers and clients, and constants of modules, that differ from the ordinary.
    """

    seed: str
    profile: str
    scenarios: tuple[str, ...]
    topics: dict[str, int]
    coordinator_count: int
    settings: dict[str, dict[str, Any]]
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    flags: dict[str, Any] = field(default_factory=dict)
    broker_count: int = 1

    def only(self, steps: Collection[int], faults: Collection[int]) -> Script:
        """The part of it with these steps and faults, by their numbers."""
        return replace(
            self,
            steps=tuple([step for step in self.steps if step.number in steps]),
            faults=tuple([fault for fault in self.faults if fault.number in faults]),
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Script:
        data = json.loads(text)
        data["steps"] = tuple([_step(one) for one in data["steps"]])
        data["faults"] = tuple([Fault(**one) for one in data["faults"]])
        data["scenarios"] = tuple(data["scenarios"])
        return cls(**data)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed} of {self.profile}: {', '.join(self.scenarios)}",
            f"topics {self.topics}, brokers {self.broker_count},"
            f" coordinators {self.coordinator_count}, {self.flags}",
        ]
        lines += [f"{name}: {values}" for name, values in self.settings.items() if values]
        lines += [str(step) for step in self.steps]
        lines += [str(fault) for fault in self.faults]
        return "\n".join(lines)


def _step(data: dict[str, Any]) -> Step:
    return Step(**{**data, "after": tuple(data["after"])})
