"""Reports the clients that a program has not closed when it ends.

Messages that were not stored are counted on stderr: nothing else may be left then that could tell
of them. That a client was not closed is a ResourceWarning, which Python shows with `-X dev`.
"""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakSet


class NotClosed(Protocol):
    """Part of a client that is not closed."""

    def end_of_process(self) -> None:
        """Say what is lost with it."""


_open: WeakSet[NotClosed] = WeakSet()


def watch(one: NotClosed) -> None:
    """Call `one.end_of_process()` when the process ends in order, if it is still there then."""
    _open.add(one)


def forget(one: NotClosed) -> None:
    """Note that a client is closed, or that what is lost was told."""
    _open.discard(one)


def warn_of(client: object, title: str) -> None:
    """Warn that a program has not closed a client.

    Args:
        client: what the warning is about: tracemalloc knows where it was made.
        title: what the program calls it.
    """
    text = f"unclosed {title}: call close(), or use it as a context manager"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=client)


def tell_lost(counts: Mapping[str, int]) -> None:
    """Tell how many messages to each topic were not stored, or of which it is not known."""
    total = sum(counts.values())
    if total and sys.stderr is not None:
        topics = ", ".join(f"{count} to {topic!r}" for topic, count in counts.items() if count)
        sys.stderr.write(
            f"magnetar: a client was not closed, and {total} messages were not stored or confirmed:"
            f" {topics}; call flush() or close() before the end\n"
        )


@atexit.register
def _end_of_process() -> None:
    for one in list(_open):
        one.end_of_process()
    _open.clear()
