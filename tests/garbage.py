"""Python's collector of cycles, for processes that make many objects which end soon."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# By default the youngest are looked at after 700 allocations, and most of them are in use then.
YOUNGEST_MAX = 20_000


def collect_seldom() -> None:
    """Look for cycles less often, and never at what is there now: modules and collected tests."""
    gc.collect()
    gc.freeze()
    look_seldom()


def look_seldom() -> None:
    """Let many more objects come before the next look, while modules or tests are made."""
    gc.set_threshold(YOUNGEST_MAX, 20, 20)


@contextmanager
def collection_off() -> Iterator[None]:
    """Collect no cycles inside of the block.

    A finalizer that the collector runs where Python's stack is full fails, and pytest takes that
    for a failure of the test: once in some thousand runs of a test that fills the stack.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
