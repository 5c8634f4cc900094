"""Signals that end a loop after its current batch."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("magnetar")


@contextmanager
def stopping_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call a function on the first SIGTERM or SIGINT. A second signal has its usual effect.

    Only the main thread receives signals; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _: object) -> None:
        log.info("%s: stopping after this batch", signal.Signals(number).name)
        restore()
        stop()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()
