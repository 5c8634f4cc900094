"""Decide when compactions rewrite blob files. Pure.

RocksDB counts the bytes of a blob file that no row refers to, and removes a file when all its bytes
are garbage. So retention, which deletes from the front, frees files at no cost. A file with a few
live rows is freed only when a compaction moves these rows. RocksDB can do that with the oldest part
of all files, but then does so in every compaction, and would write a quarter of all stored bytes
again and again. So compactions may do it only while enough bytes are garbage: they then move less
than they free.
"""

from __future__ import annotations

from typing import Final

# Shares of garbage in a family's blob files: collecting begins above the first share, and ends
# below the second.
GARBAGE_SHARE_MAX: Final = 0.5
GARBAGE_SHARE_MIN: Final = 0.25
# With fewer stored bytes, collecting is not worth its cost.
STORED_BYTES_MIN: Final = 256 << 20

# The oldest share of the files, from which a compaction moves rows.
AGE_CUTOFF_COLLECTING: Final = 0.25
AGE_CUTOFF_LEAVING: Final = 0.0


def is_to_collect(stored_bytes: int, garbage_bytes: int, *, collecting: bool) -> bool:
    """Return whether compactions of a family shall move rows out of its oldest blob files.

    Args:
        stored_bytes: size of the family's blob files, garbage included.
        garbage_bytes: the part of it that no row refers to.
        collecting: whether compactions do so now.
    """
    if stored_bytes < STORED_BYTES_MIN:
        return False
    return garbage_bytes / stored_bytes > (GARBAGE_SHARE_MIN if collecting else GARBAGE_SHARE_MAX)
