"""Notice that the process which started this process has gone."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

STOP_S_MAX = 20.0

# Option of Linux's prctl(2): the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1

# EX_TEMPFAIL of sysexits.h. The parent that could see it has gone.
EXIT_ABANDONED = 75


def watch_parent(stop: Callable[[], None]) -> None:
    """Call back on the event loop when standard input ends; see `on_parent_gone`."""
    loop = asyncio.get_running_loop()
    on_parent_gone(lambda: loop.call_soon_threadsafe(stop))


def on_parent_gone(
    act: Callable[[], object], *, on_word: Callable[[], object] = lambda: None
) -> None:
    """Call back, in a thread, when standard input ends: the parent process has gone.

    The parent can then no longer kill a process that does not stop, so this process ends itself
    after a while. If it was stopped (SIGSTOP), it continues first, and so does the process group
    that it leads: a stopped process does not notice the end of its input.

    Args:
        act: called when standard input ends.
        on_word: called for each byte that comes before the end.
    """
    _continue_when_parent_dies()

    def watch() -> None:
        while os.read(0, 1):
            on_word()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGCONT)
        try:
            act()
        except RuntimeError:
            return  # the loop has ended already
        threading.Event().wait(STOP_S_MAX)
        os._exit(EXIT_ABANDONED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _continue_when_parent_dies() -> None:
    """Have the kernel send SIGCONT, which does nothing to a process that runs already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT))
