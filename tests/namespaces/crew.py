"""What the clients of a process share: names, times, and where they write down what happens."""

from __future__ import annotations

import asyncio
import itertools
from random import Random

from tests.namespaces.records import Recorder
from tests.waiting import pace

ACCOUNTS, ORDERS, TELLERS = "accounts", "orders", "tellers"
ACCOUNT_PARTITIONS, ORDER_PARTITIONS = 16, 4
# Values begin with a number that is used once: tests.simulation.history.
NUMBERS_PER_PROCESS = 10_000_000


class Crew:
    """The clients of a process."""

    def __init__(self, name: str, recorder: Recorder, seed: int, pause_s: float) -> None:
        self.name = name
        self.recorder = recorder
        self.random = Random(f"{seed}/{name}")
        self.pause_s = pause_s
        self.stopping = asyncio.Event()
        number = int("".join(filter(str.isdigit, name)))
        self._numbers = itertools.count(number * NUMBERS_PER_PROCESS)

    def value(self, text: str) -> str:
        return f"m{next(self._numbers)}.{text}"

    async def pause(self) -> None:
        """Take the time that users take."""
        await pace(self.random.uniform(0.5, 1.5) * self.pause_s)
