"""Slots of the key hash, and the consumer that each slot should have. Pure.

A key's hash is CRC-32C, which a multiplication mixes before its highest bits name a slot. Without
that, keys that count (user-1, user-2) would share few slots, since CRC is linear; and so would all
keys of a partition, since clients choose partitions by the remainder of the same hash.

Every consumer has a weight for every slot, drawn from its identity, and the heaviest consumer gets
the slot (rendezvous hashing). So a consumer that joins or leaves moves about 1/n of the slots, and
no others.

4,096 slots: ten consumers get equal shares within 15 %, and a consumer that joins costs a
millisecond and 16 KiB. Keys that share a slot wait for each other when it moves; more slots would
make that rarer, and joining dearer in proportion.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from functools import lru_cache

SLOT_BITS = 12
SLOT_COUNT = 1 << SLOT_BITS
_SHIFT = 32 - SLOT_BITS
# 2 to the 32nd by the golden ratio, odd: Knuth, The Art of Computer Programming, 6.4.
_MULTIPLIER = 0x9E3779B1
# The slot of messages without a key: CRC-32C of nothing is 0.
EMPTY_KEY_SLOT = 0


def slot_of_hash(key_hash: int) -> int:
    """Return the slot of a key's hash."""
    return (key_hash * _MULTIPLIER & 0xFFFFFFFF) >> _SHIFT


# A consumer attaches to many partitions, with the same weights in all of them.
@lru_cache(maxsize=256)
def _weights(consumer_id: int, name: str) -> array[int]:
    stream = hashlib.shake_128(consumer_id.to_bytes(8, "big") + name.encode())
    weights = array("I", stream.digest(4 * SLOT_COUNT))
    if sys.byteorder == "big":
        weights.byteswap()
    return weights


class Targets:
    """The consumer that each slot should have, by id."""

    def __init__(self) -> None:
        self._weights: dict[int, array[int]] = {}
        self._targets: list[int | None] = [None] * SLOT_COUNT

    def of(self, slot: int) -> int | None:
        """Return the consumer of a slot; None: there is no consumer."""
        return self._targets[slot]

    def add(self, consumer_id: int, name: str) -> None:
        """Add a consumer: it takes the slots for which it is the heaviest."""
        weights = _weights(consumer_id, name)
        targets, known = self._targets, self._weights
        for slot, target in enumerate(targets):
            if target is None or (weights[slot], consumer_id) > (known[target][slot], target):
                targets[slot] = consumer_id
        known[consumer_id] = weights

    def remove(self, consumer_id: int) -> None:
        """Remove a consumer: each of its slots goes to the next heaviest."""
        del self._weights[consumer_id]
        rest = list(self._weights.items())
        if not rest:
            self._targets = [None] * SLOT_COUNT
            return
        for slot, target in enumerate(self._targets):
            if target == consumer_id:
                self._targets[slot] = max((weights[slot], one) for one, weights in rest)[1]
