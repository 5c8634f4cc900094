"""Tells conversations that shards have other owners, and not for each of many changes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar_cluster.directory.view import View
from magnetar_core.wire.common_pb2 import CommandOwnersChanged

# Clients look up anew each time. A member that is lost changes many shards within moments.
PAUSE_SECONDS = 0.1


class OwnersPush:
    """Pushes OwnersChanged: at the first change at once, and for what follows soon after together.

    Args:
        push: sends a command to all conversations.
    """

    def __init__(self, push: Callable[[Any], None]) -> None:
        self._push = push
        self._told: View | None = None
        self._latest = View()
        self._timer: asyncio.TimerHandle | None = None

    def owners_changed(self, view: View) -> None:
        """Take a later view."""
        self._latest = view
        if self._timer is None:
            self._tell()

    def close(self) -> None:
        """Stop telling clients."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        self._timer = None
        told, latest = self._told, self._latest
        if told is not None and (told.shard_owners, told.members) == (
            latest.shard_owners,
            latest.members,
        ):
            return
        self._told = latest
        self._push(CommandOwnersChanged())
        self._timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._tell)
