"""Makes the C library's allocator reuse blocks as large as batches."""

from __future__ import annotations

from functools import cache
from typing import Final

# The largest block for which glibc moves its limits, less what it adds to a block itself.
_BLOCK_BYTES: Final = (32 << 20) - (64 << 10)


@cache
def reuse_large_blocks() -> None:
    """Have freed blocks of up to 32 MiB used again, where the C library is glibc. Once is enough.

    At first glibc takes every block of 128 KiB or more from the operating system, and gives it back
    when it is freed, so that each page of each batch is mapped and cleared anew: that takes several
    times as long as to fill it. It goes over to its own memory for blocks up to the largest that
    was ever freed, and then keeps up to twice as much free memory. So a block is freed here of
    which no page was touched. An operator who has set the limits (MALLOC_MMAP_THRESHOLD_,
    GLIBC_TUNABLES, mallopt) keeps them.
    Source: mallopt(3), M_MMAP_THRESHOLD, dynamic adjustment.
    """
    # Made of zeros, which the allocator has from the system without a touch.
    bytes(_BLOCK_BYTES)
