"""`magnetar`, with a wall clock that is as wrong as a file says.

    python -m tests.namespaces.server broker --name broker-a ...

All of the product asks magnetar_core.clock for the time, so that a jump there is one everywhere in
it. The clocks of gRPC and of SlateDB, which are compiled, stay right; the monotonic clock and the
one for leases do not jump on real machines either.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "TESTED_CLOCK"
_OFFSET = struct.Struct("<q")


class ClockFile:
    """Says by how many milliseconds a wall clock is wrong, to a process that runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    def set(self, offset_ms: int) -> None:
        """Have the clock jump."""
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY)
        try:
            os.pwrite(descriptor, _OFFSET.pack(offset_ms), 0)
        finally:
            os.close(descriptor)


def jump_with(path: Path) -> None:
    """Have the wall clock of this process follow a file."""
    from magnetar_core.clock import SystemClock

    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def wall_ms(self: SystemClock) -> int:
        (offset_ms,) = _OFFSET.unpack(offset[: _OFFSET.size])
        return time.time_ns() // 1_000_000 + int(offset_ms)

    SystemClock.wall_ms = wall_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    jump_with(Path(os.environ.pop(VARIABLE)))

    from magnetar_cli import main

    main()
