"""The end of a command's process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

# Its threads come back to Python when a call is over. If the interpreter is being taken down at
# that moment, it ends such a thread, and Rust answers with abort(): a command that had done its
# work ended with SIGABRT.
NATIVE_THREADS = "obstore"


def end_process(code: object) -> NoReturn:
    """End the process with what SystemExit has been given.

    Where native threads may still run, the interpreter is not taken down; all that programs notice
    of that is done as multiprocessing does it: threads end, functions of atexit run, and what was
    printed is written.
    """
    if NATIVE_THREADS not in sys.modules or not isinstance(code, int | None):
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # A reader that has gone, or a stream that was closed from the start.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code or 0)
