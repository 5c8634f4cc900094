"""Mistakes in what gives way when a broker's memory is short."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MEMORY = "broker/magnetar_broker/budgets/memory.py"
_TAILS = "broker/magnetar_broker/budgets/tails.py"
_BROKER = "broker/magnetar_broker/broker.py"
_LOG = "broker/magnetar_broker/log/partition_log.py"
_RECENT = "broker/magnetar_broker/transactions/recent_messages.py"
_PROCESS = "core/magnetar_core/process/process_memory.py"

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
        old="        self.bytes_max = bytes_max\n        if self",
        new="        if self",
        mistake="A lower limit is forgotten.",
    ),
    Mutant(
        name="memory-is-never-given-back",
        file=_MEMORY,
        old="and self._give_back():",
        new="and not self._give_back:",
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
        old="loop.call_later(delay_s, self._watch_memory)",
        new="loop.call_at(delay_s, self._watch_memory)",
        mistake="The next look comes at a moment long past: the broker does nothing else.",
    ),
    Mutant(
        name="every-broker-looks",
        file=_MEMORY,
        old="        if now_s < self._next_look_s:\n",
        new="        if False:\n",
        mistake="64 shards look 256 times a second, and give back as often.",
    ),
    Mutant(
        name="what-stays-in-the-process-drops-more",
        file=_MEMORY,
        old="        self._accepted_bytes = max(accepted_bytes, resident_bytes)\n",
        new="",
        mistake="Tails shrink again and again for what the allocator cannot give back.",
    ),
    Mutant(
        name="tails-shrink-while-memory-is-given-back",
        file=_MEMORY,
        old="            self._is_returned = False\n",
        new="            pass\n",
        mistake="Tails shrink for memory that is about to be given back.",
    ),
    Mutant(
        name="more-than-the-budget-is-accepted",
        file=_MEMORY,
        old="min(accepted_bytes, self.memory_bytes - INSIST_LEFT_BYTES)",
        new="min(accepted_bytes, resident_bytes)",
        mistake="With more than memory_bytes, tails keep what they have, as long as nothing grows.",
    ),
    Mutant(
        name="one-tail-gives-way-after-the-other",
        file=_TAILS,
        old="                heapreplace(oldest, (tail.oldest_ms, number, tail))\n",
        new="                pass\n",
        mistake="Its pages hold entries of other partitions, and cannot be given back.",
    ),
    Mutant(
        name="broker-that-failed-to-end-keeps-its-tails",
        file=_BROKER,
        old="        finally:\n            self._forget_tails()\n",
        new="        except StopAsyncIteration:\n            pass\n        self._forget_tails()\n",
        mistake="A shard whose store somebody else has by now keeps memory of the process.",
    ),
    Mutant(
        name="messages-of-transactions-never-give-way",
        file=_RECENT,
        old="size <= self._tails.bytes_max // SHARE",
        new="size <= (64 << 20)",
        mistake="What makes reading faster is kept in each shard, however short memory is.",
    ),
    Mutant(
        name="dropped-entries-stay-in-memory",
        file=_LOG,
        old="        self._tail[self._tail_start] = _DROPPED\n",
        new="",
        mistake="Up to a quarter of a tail that shrank stays in memory.",
    ),
    Mutant(
        name="giving-back-never-rests",
        file=_PROCESS,
        old="ended_s + REST_FACTOR * (ended_s - began_s)",
        new="ended_s",
        mistake="The allocator's locks are held most of the time when memory is short.",
    ),
)
