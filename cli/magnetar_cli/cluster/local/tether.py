"""Becomes another program that dies with the process that started it, however that one dies.

`python tether.py PARENT_PID PROGRAM ARGUMENT...`; it keeps its process id. The kernel of Linux does
this. Elsewhere the program outlives a parent that is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Option of Linux's prctl(2): the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become the program."""
    parent, program, *rest = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != int(parent):
            sys.exit(1)  # it died before the kernel knew
    os.execv(program, [program, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
