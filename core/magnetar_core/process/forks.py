"""Resources of a process that a child forked from it must not use.

A forked child has copies of its parent's sockets, and of objects whose threads and event loops run
in the parent alone. Each of these is told in the child, before the child runs anything else.
"""

from __future__ import annotations

import os
import socket
from typing import Protocol
from weakref import WeakSet


class OfOneProcess(Protocol):
    """Resource that a forked child must not use."""

    def forked(self) -> None:
        """Note that this is the copy of a forked child. Must neither wait nor raise."""


_things: WeakSet[OfOneProcess] = WeakSet()
_sockets: WeakSet[socket.socket] = WeakSet()


def belongs_here(thing: OfOneProcess) -> None:
    """Call `thing.forked()` in each child that is forked from now on."""
    _things.add(thing)


def close_in_children(connection: socket.socket) -> None:
    """Close the copies of a connection that forked children get.

    The other side would not learn of the end of this process while a child still has a copy.
    """
    _sockets.add(connection)


def _in_child() -> None:
    for thing in list(_things):
        thing.forked()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_sockets):
        if connection.fileno() >= 0:
            # Not close(): other code may close the number later, when it is that of another file.
            # And the selector must not be told, which the child shares with its parent.
            os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)
    _things.clear()
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
