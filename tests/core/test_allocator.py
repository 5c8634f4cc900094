"""Large blocks are taken from memory that the process has, and not from the operating system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

# Fills and frees blocks of many sizes, and says how many pages were mapped for each block.
PROGRAM = """
import resource, sys
from magnetar_core.process.allocator import reuse_large_blocks
if "reuse" in sys.argv:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        reuse_large_blocks()
    if resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before > 100:
        sys.exit("it touches the block")
sizes = [(130 << 10) + step * (37 << 10) for step in range(20)] + [5 << 20]
contents = [bytes(size) for size in sizes]
views = [memoryview(one) for one in contents]
def turn():
    for view in views:
        first = bytes(view)
        both = b"".join((first, view))
        del first, both
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")


def faults(*arguments: str, **environ: str) -> int:
    kept = {name: text for name, text in os.environ.items() if "MALLOC" not in name}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@glibc
def test_blocks_as_large_as_batches_are_used_again() -> None:
    assert faults("reuse") * 20 < faults()


@glibc
def test_limits_that_somebody_has_set_stay() -> None:
    """Or the operator's own choice would be undone in silence."""
    chosen = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10), "MALLOC_TRIM_THRESHOLD_": str(64 << 10)}
    assert faults("reuse", **chosen) * 2 > faults(**chosen) > 1_000
