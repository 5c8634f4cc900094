"""Children of this process that are forked, and not executed: they have copies of its objects."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked child; return its status, which is 1 if the work has raised.

    A negative status is the number of a signal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
