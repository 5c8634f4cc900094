"""Looks whether the clients of conversations still may do what goes on for them.

Commands are checked when they come. Messages that flow by themselves, and memberships, are not
asked for again: they end within a second after the right to them is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.4


class Conversation(Protocol):
    """A conversation, as the watch sees it."""

    def look(self) -> None:
        """End what the client may do no more."""
        ...


class RightsWatch:
    """Watch over the conversations of a server.

    Args:
        conversations: returns those that go on.
    """

    def __init__(self, conversations: Callable[[], Iterable[Conversation]]) -> None:
        self._conversations = conversations
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        """Look no more. Repeating it is harmless."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for conversation in list(self._conversations()):
                try:
                    conversation.look()
                except Exception:
                    # What one conversation meets must not leave the others without a watch.
                    log.exception("rights of a conversation cannot be looked at")
