"""Checks the conversations of a server again, several times a second.

Identities and rights are checked when a conversation or a command begins. This watch ends those
whose certificate, token or right was revoked since, within a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Conversation = TypeVar("Conversation")

_LOOK_SECONDS = 0.4


class ConversationWatch(Generic[Conversation]):
    """Watch over the conversations of a server. An error in one does not stop the watch.

    Args:
        conversations: returns those that are open. look: ends the work that a client no longer has
            a right to do.
    """

    def __init__(
        self,
        conversations: Callable[[], Iterable[Conversation]],
        look: Callable[[Conversation], None],
    ) -> None:
        self._conversations = conversations
        self._look = look
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        """Stop looking. Repeating it is harmless."""
        if self._watching is not None:
            self._watching.cancel()

    def look(self) -> None:
        """Look at all conversations now."""
        for conversation in list(self._conversations()):
            try:
                self._look(conversation)
            except Exception:
                # What one conversation meets must not leave the others without a watch.
                log.exception("a conversation cannot be checked")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("the conversations cannot be checked")
