"""A draft in which scenarios write steps and faults, and which becomes a script."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.short.script import Fault, Script, Step


class Draft:
    """Args:
    random: what scenarios draw from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        # Names of all scenarios that the script is made of.
        self.scenarios: tuple[str, ...] = ()
        self.topics: dict[str, int] = {}
        self.settings: dict[str, dict[str, Any]] = {
            "broker": {},
            "coordinator": {},
            "client": {},
            "topic": {},
            "constants": {},
        }
        self.broker_count = 1
        self.coordinator_count = 1
        # What the run has to know as a whole; see world.py.
        self.flags: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.faults: list[Fault] = []
        self._client_count = 0

    def topic(self, name: str, partitions: int | None = None) -> str:
        """A topic that exists from the beginning; shared with other scenarios by its name."""
        known = self.topics.get(name)
        if known is None:
            self.topics[name] = partitions or self.random.choice((1, 2))
        return name

    def partition(self, topic: str) -> int:
        return self.random.randrange(self.topics[topic])

    def client(self, kind: str = "client") -> str:
        self._client_count += 1
        return f"{kind}-{self._client_count}"

    def step(
        self,
        client: str,
        verb: str,
        *,
        task: int = 0,
        pause_s: float = 0.0,
        after: tuple[int, ...] = (),
        closing: bool = False,
        **arguments: Any,
    ) -> int:
        """Write a step down; returns its number."""
        number = len(self.steps) + 1
        self.steps.append(
            Step(number, client, verb, arguments, task, round(pause_s, 4), after, closing)
        )
        return number

    def fault(self, kind: str, *, step: int, delay_s: float = 0.0, **arguments: Any) -> None:
        """Write a fault down, to strike when a step has begun."""
        number = len(self.faults) + 1
        self.faults.append(Fault(number, step, round(delay_s, 4), kind, arguments))

    def finish(self, seed: str, profile: str, scenarios: tuple[str, ...]) -> Script:
        script = Script(
            seed,
            profile,
            scenarios,
            dict(self.topics),
            self.coordinator_count,
            self.settings,
            tuple(self.steps),
            tuple(self.faults),
            self.flags,
            self.broker_count,
        )
        # As it would be read: a list is a list, also where somebody wrote a tuple.
        return Script.from_json(script.to_json())
