"""What callers do, as data: each step is a call of a public method. A seed draws the whole script.

What a step gives as arguments comes from a number of its own, and not from an order: a script from
which steps are taken away does mostly what it did before, so that a failing one can be shrunk.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from blocking_facade import INTERNAL, PAIRS

# How often a class is chosen. Messages and transactions are what it is about.
WEIGHTS = {
    "Producer": 40,
    "Client": 12,
    "Transaction": 14,
    "TransactionScope": 6,
    "Consumer": 12,
    "GroupConsumer": 6,
    "TransactionalProducer": 8,
}
# Of classes that are not named above: administrators' rooms.
WEIGHT_OF_OTHERS = 0.6
# Seldom, or everything would be closed all the time.
RARE = {"close": 0.15, "leave": 0.1, "withdraw": 0.1, "cut": 0.3}
# It is played as a step of its own, with what happens in the block.
SCOPE = "block"


@dataclass(frozen=True)
class Step:
    """A call.

    Attributes:
        caller: the task or the thread that makes it.
        kind: the class of the object.
        place: which of the objects of this class.
        method: the name of the method.
        chance: what the arguments are drawn from.
        fate: "await", "leave" (go on without waiting), or "cancel".
        turns: after so many turns of the event loop it is cancelled.
        pause_s: before the next step.
    """

    number: int
    caller: int
    kind: str
    place: int
    method: str
    chance: int
    fate: str
    turns: int
    pause_s: float

    def __str__(self) -> str:
        call = f"{self.kind}[{self.place}].{self.method}"
        return f"#{self.number} caller {self.caller}: {call} {self.fate}"


@dataclass(frozen=True)
class Script:
    """Steps, and the circumstances.

    Attributes:
        callers: how many there are.
        fault_rate: how many commands go wrong, of all.
        bad_rate: how many arguments are bad, of all.
    """

    seed: int
    callers: int
    fault_rate: float
    bad_rate: float
    steps: tuple[Step, ...]

    def only(self, numbers: list[int]) -> Script:
        """The same with some steps."""
        kept = set(numbers)
        return replace(self, steps=tuple(step for step in self.steps if step.number in kept))


def methods() -> dict[str, tuple[str, ...]]:
    """The public methods of each class."""
    found = {
        pair.name: tuple(
            name
            for name, _ in inspect.getmembers(pair.kind, inspect.isfunction)
            if not name.startswith("_") and name not in INTERNAL.get(pair.name, set())
        )
        for pair in PAIRS
    }
    found["TransactionScope"] = (SCOPE,)
    return {name: found[name] for name in sorted(found) if found[name]}


METHODS = methods()


def draw(seed: int, count: int) -> Script:
    """Draw a script."""
    random = Random(seed)
    callers = random.choice((1, 2, 3, 5))
    kinds = list(METHODS)
    weights = [WEIGHTS.get(kind, WEIGHT_OF_OTHERS) for kind in kinds]
    cancel_rate = random.choice((0.0, 0.05, 0.3))
    steps = []
    for number in range(count):
        (kind,) = random.choices(kinds, weights)
        names = METHODS[kind]
        (method,) = random.choices(names, [RARE.get(name, 1.0) for name in names])
        fate = (
            "cancel"
            if random.random() < cancel_rate
            else random.choice(("await", "await", "leave"))
        )
        steps.append(
            Step(
                number,
                random.randrange(callers),
                kind,
                random.randrange(8),
                method,
                random.getrandbits(32),
                fate,
                random.choice((0, 0, 1, 2, 3, 5, 9)),
                random.choice((0.0, 0.0, 0.0, 0.001, 0.01, 0.3)),
            )
        )
    return Script(
        seed,
        callers,
        random.choice((0.0, 0.0, 0.02, 0.15)),
        random.choice((0.0, 0.1, 0.4)),
        tuple(steps),
    )


def described(value: Any) -> str:
    """What was given, in one line."""
    text = repr(value)
    return text if len(text) < 100 else f"{text[:60]}...{text[-30:]}"
