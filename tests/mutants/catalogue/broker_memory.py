"""Mistakes in what gives way when a broker's memory is short."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MEMORY = "broker/magnetar_broker/memory.py"
_TAILS = "broker/magnetar_broker/tails.py"
_BROKER = "broker/magnetar_broker/broker.py"

MUTANTS = (
    Mutant(
        name="tails-never-give-way",
        file=_MEMORY,
        old="held_bytes + free_bytes - excess_bytes",
        new="held_bytes + free_bytes",
        mistake="Tails keep what they have, whatever else needs memory.",
    ),
    Mutant(
        name="tails-grow-in-a-full-process",
        file=_TAILS,
        old="        self._bytes_max = bytes_max\n        self._make_room()",
        new="        self._make_room()",
        mistake="A lower limit is forgotten.",
    ),
    Mutant(
        name="memory-is-never-given-back",
        file=_MEMORY,
        old="            self._give_back()\n",
        new="            pass\n",
        mistake="What the allocator keeps counts as used, so tails shrink for nothing.",
    ),
    Mutant(
        name="ended-broker-keeps-its-tails",
        file=_BROKER,
        old="            partition.log.forget_tail()\n",
        new="            pass\n",
        mistake="A shard that went away keeps memory of the process.",
    ),
    Mutant(
        name="memory-is-looked-at-once",
        file=_BROKER,
        old="        self._memory_timer = asyncio.get_running_loop().call_later(\n",
        new="        self._memory_timer = asyncio.get_running_loop().call_at(\n",
        mistake="The next look comes at a moment long past: the broker does nothing else.",
    ),
)
