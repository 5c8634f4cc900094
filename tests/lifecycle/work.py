"""Functions of workers in process pools, which import this module."""

from __future__ import annotations

from magnetar import blocking


def blocking_names(address: str) -> list[str]:
    """Connect, and return the names of all topics."""
    with blocking.connect(address) as client:
        return [one.topic for one in client.admin.topics.list()]
