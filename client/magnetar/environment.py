"""Whether a process is as a client needs it: others may have replaced its clock or its sockets."""

from __future__ import annotations

import asyncio
import sys
from types import BuiltinFunctionType
from typing import Any

from magnetar.errors import UnsupportedEnvironment
from magnetar_core.clock import SystemClock

# A loop's clock that is so far from the machine's is another one. A replaced clock shows a date;
# uvloop's may be behind for as long as a callback takes.
DIFFERENCE_S_MAX = 3_600.0


def check_clock(loop: asyncio.AbstractEventLoop) -> None:
    """Check that the timers of an event loop fire.

    Raises:
        UnsupportedEnvironment: its clock is replaced (freezegun).
    """
    clock = SystemClock()
    is_real = isinstance(clock.monotonic_ns, BuiltinFunctionType)
    if is_real and abs(loop.time() - clock.monotonic_ms() / 1000) < DIFFERENCE_S_MAX:
        return
    raise UnsupportedEnvironment(
        "the clock of this process is replaced, so no timeout would ever end: connect outside of"
        " freeze_time(), or use freeze_time(..., real_asyncio=True) and import magnetar before it"
    )


def check_sockets() -> None:
    """Check that an event loop on a thread of its own can use sockets.

    Raises:
        UnsupportedEnvironment: sockets are gevent's, and threads are not.
    """
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is None:
        return
    if monkey.is_module_patched("select") and not monkey.is_module_patched("threading"):
        raise UnsupportedEnvironment(
            "gevent has replaced sockets and not threads, and the client needs both of one kind:"
            " call gevent.monkey.patch_all() without thread=False"
        )
