"""Chooses small files that are written together. Pure.

Files of a partition fall into tiers, of which each begins at four times the size of the one before.
As soon as a tier has four files, they become one, which belongs to a higher tier. So a row is
written again about once for each tier, and a partition has few files, however many runs have added
to it. Only in the lowest tier a file may be written again every third run, until it has a megabyte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

# How many files of a tier are written together, at least; the same as the factor between tiers.
TOGETHER: Final = 4
# Files below it are all of one tier: what they cost is opening them.
SMALL_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """A file of a table.

    Attributes:
        partition: only files of the same partition are written together.
    """

    path: str
    partition: Hashable
    byte_count: int


def groups(files: Iterable[StoredFile], target_bytes: int) -> list[list[StoredFile]]:
    """Return files to be written together, group by group.

    Args:
        target_bytes: about how large a file should be. Files of a quarter of it stay as they are.
    """
    tiers: defaultdict[tuple[Hashable, int], list[StoredFile]] = defaultdict(list)
    for one in files:
        if one.byte_count * TOGETHER <= target_bytes:
            tiers[one.partition, _tier(one.byte_count)].append(one)
    found = []
    for tier in tiers.values():
        tier.sort(key=lambda one: (one.byte_count, one.path))
        group: list[StoredFile] = []
        group_bytes = 0
        for one in tier:
            if group_bytes + one.byte_count > target_bytes:
                found.append(group)
                group, group_bytes = [], 0
            group.append(one)
            group_bytes += one.byte_count
        found.append(group)
    return [group for group in found if len(group) >= TOGETHER]


def _tier(byte_count: int) -> int:
    tier, end = 0, SMALL_BYTES
    while byte_count >= end:
        tier, end = tier + 1, end * TOGETHER
    return tier
