"""File descriptors of a server process: how many it may have, and what they are kept for.

A process that has used up its descriptors cannot open the next file of its store, which looks like
a failed disk. So connections get a share of them, and files keep theirs, whatever clients do.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

# A store keeps up to 640 files open. The others are logs, links to servers, and what the
# interpreter has.
_FILES_MAX: Final = 1_024
# Connections to the port of streams that have shown no ticket, and connections for metrics.
_STRANGERS_MAX: Final = 1_024
_METRICS_MAX: Final = 64


class Shares(NamedTuple):
    """Number of descriptors that a process may use for each purpose.

    Attributes:
        files: files, and everything else that is not listed here.
        metrics: connections to the port for metrics.
        strangers: connections to the port of streams that have shown no ticket.
        connections: connections to each address of the gRPC port, and as many streams.
    """

    files: int
    metrics: int
    strangers: int
    connections: int


def shares_of(limit: int) -> Shares:
    """Divide descriptors among the purposes. Small limits are divided in proportion."""
    files = min(_FILES_MAX, limit // 2)
    metrics = min(_METRICS_MAX, limit // 32)
    strangers = min(_STRANGERS_MAX, limit // 16)
    # A name such as localhost has up to two addresses, and gRPC counts for each of them.
    return Shares(files, metrics, strangers, (limit - files - metrics - strangers) // 3)


def limit() -> int:
    """Return how many descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def shares() -> Shares:
    """Return the shares of this process, as its limit is now."""
    return shares_of(limit())


def open_count() -> int:
    """Return how many descriptors this process has, where the system tells; else 0."""
    try:
        # The topic directory uses one of them.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0


def raise_limit() -> None:
    """Raise the limit of this process to the hard limit.

    The usual soft limit is 1,024, and the hard one is often a million.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays %d, below the hard limit: %s", soft, error)


def are_used_up(error: OSError) -> bool:
    """Return whether a file was not opened because the process, or the machine, has too many."""
    return error.errno in (errno.EMFILE, errno.ENFILE)
