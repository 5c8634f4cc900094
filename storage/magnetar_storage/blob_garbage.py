"""When compactions rewrite blob files, and when they leave them alone. Pure.

RocksDB counts what of its blob files nobody refers to any more, and removes a file of which that is
all: so retention, which deletes from the front, frees its files at no cost. A file with a few rows
that stay is freed only when a compaction moves them. RocksDB can do that with the oldest part of
all files, but then does so in every compaction, garbage or not, which would write a quarter of all
that is stored again and again. So it is allowed while enough is garbage: what is moved is then less
than what is freed.
"""

from __future__ import annotations

from typing import Final

# Shares of a family's blob files that are garbage: begin to collect above the one, end below the
# other.
GARBAGE_SHARE_MAX: Final = 0.5
GARBAGE_SHARE_MIN: Final = 0.25
# Below it, collecting is not worth while.
STORED_BYTES_MIN: Final = 256 << 20

# The oldest share of the files that a compaction moves rows out of.
AGE_CUTOFF_COLLECTING: Final = 0.25
AGE_CUTOFF_LEAVING: Final = 0.0


def is_to_collect(stored_bytes: int, garbage_bytes: int, *, collecting: bool) -> bool:
    """Whether a family's compactions are to move rows out of its oldest blob files.

    Args:
        stored_bytes: of its blob files, garbage included.
        collecting: whether they do so now.
    """
    if stored_bytes < STORED_BYTES_MIN:
        return False
    return garbage_bytes / stored_bytes > (GARBAGE_SHARE_MIN if collecting else GARBAGE_SHARE_MAX)
