"""Doors: which shards of a server take conversations.

A server that keeps one shard for good takes all conversations. A server whose shards come and go
has a door for each of them: a conversation names the shard and the epoch of its ownership, and
waits while that shard is being opened. A conversation that names no shard is let in anywhere.
Source: docs/design/0009-owners.md, Addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from magnetar_core.errors import LogUnavailable, MagnetarError, PartitionMoved
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandServer,
    CommandSession,
    Conversation,
    Handler,
    Reply,
)

# A conversation waits for a shard that is being opened for no longer than this.
OPENING_WAIT_MS_MAX = 30_000
# A conversation whose client does not take what is answered is ended after this.
FINISHING_MS_MAX = 2_000


class Visit(Protocol):
    """Conversation, or unary call, with a shard."""

    def finish(self) -> None:
        """Take nothing new, and end when what is answered has left."""
        ...

    def end(self) -> None:
        """End at once, without sending what is queued."""
        ...


class Door:
    """Entrance to a shard: the shard's commands, and who is inside."""

    def __init__(self, commands: CommandServer | None = None) -> None:
        # None: the shard is being opened, or has gone.
        self.commands = commands
        # A dict, since a set's order would differ from run to run.
        self._visits: dict[Visit, None] = {}
        self._changed: list[asyncio.Future[None]] = []

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The shard's handlers."""
        return self._server.handlers

    @property
    def answer_sizes(self) -> AnswerSizes:
        """The largest sizes of the shard's answers."""
        return self._server.answer_sizes

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation with the shard."""
        return self._server.accept(conversation)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Let the shard send an error."""
        self._server.refuse(error, reply)

    def come(self, visit: Visit) -> None:
        """Note who is inside: they are told when the door is shut."""
        self._visits[visit] = None

    def leave(self, visit: Visit) -> None:
        """Note who has gone. Repeating it is harmless."""
        self._visits.pop(visit, None)
        if not self._visits:
            self.changed()

    def finish(self) -> None:
        """Tell all who are inside to end when what is answered has left."""
        for visit in list(self._visits):
            visit.finish()

    def end(self) -> None:
        """Tell all who are inside to end at once."""
        for visit in list(self._visits):
            visit.end()

    async def emptied(self) -> None:
        """Wait until no conversation is inside."""
        while self._visits:
            await self.changes()

    async def changes(self) -> None:
        """Wait until the door is opened or shut, or the last conversation has left."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(change)
        await change

    def changed(self) -> None:
        """Wake those who wait for a change."""
        changed, self._changed = self._changed, []
        for one in changed:
            if not one.done():
                one.set_result(None)

    @property
    def _server(self) -> CommandServer:
        if self.commands is None:
            raise BrokenInvariant("the shard behind this door is not open")
        return self.commands


class Doors:
    """Doors of a server."""

    def __init__(self) -> None:
        # Of the server itself: a shard that it keeps for good, or its own few commands.
        self._own: Door | None = None
        self._doors: dict[ShardPlace, Door] = {}
        # Shut, and a conversation is still inside.
        self._shutting: dict[ShardPlace, Door] = {}
        self._stopping = False

    def open_own(self, commands: CommandServer) -> None:
        """Let those in who name no shard, while no shard is ready."""
        self._own = Door(commands)

    def announce(self, place: ShardPlace) -> None:
        """Let conversations wait for a shard that is being opened. Repeating it is harmless."""
        self._doors.setdefault(place, Door())

    def open(self, place: ShardPlace, commands: CommandServer) -> None:
        """Let conversations in. The shard was announced, and not shut since."""
        door = self._doors.get(place)
        if door is None:
            raise BrokenInvariant(f"shard {place} was not announced, or is shut")
        door.commands = commands
        door.changed()

    async def shut(self, place: ShardPlace, *, gracefully: bool) -> None:
        """Refuse new conversations, end the present ones, and wait until they have ended.

        Args:
            place: nothing happens if it has no door.
            gracefully: what is answered leaves first. Otherwise all ends at once, also what is
                being ended gracefully.
        """
        door = self._doors.pop(place, None) or self._shutting.get(place)
        if door is None:
            return
        self._shutting[place] = door
        door.changed()
        try:
            if gracefully:
                door.finish()
                try:
                    async with asyncio.timeout(FINISHING_MS_MAX / 1_000):
                        await door.emptied()
                except TimeoutError:
                    pass
            door.end()
            await door.emptied()
        finally:
            self._shutting.pop(place, None)

    def mute(self, place: ShardPlace | None = None) -> None:
        """End the conversations of a shard, or of all, at once. New ones are let in as before."""
        for doors in (self._doors, self._shutting):
            for one, door in doors.items():
                if place in (None, one):
                    door.end()

    def stop(self) -> None:
        """Refuse all conversations from now on: the server stops."""
        self._stopping = True
        doors, self._doors = self._doors, {}
        for door in doors.values():
            door.changed()

    async def enter(self, place: ShardPlace | None) -> Door:
        """Wait until a shard answers, and return its door.

        Args:
            place: the shard, and the epoch of its ownership; None: any shard that is ready, or else
                the server itself.
        Raises:
            PartitionMoved: the server does not have the shard in this epoch.
            LogUnavailable: nothing is ready yet, or not in time.
        """
        if place is None:
            return self._ready()
        try:
            async with asyncio.timeout(OPENING_WAIT_MS_MAX / 1_000):
                while (door := self._doors.get(place)) is not None:
                    if door.commands is not None:
                        return door
                    await door.changes()
        except TimeoutError:
            raise LogUnavailable(f"shard {place.shard} is still being opened; ask again") from None
        if self._stopping:
            raise not_ready()
        raise PartitionMoved(
            f"this server does not have shard {place.shard} in epoch {place.epoch}, or not any "
            "longer: ask any server where it is now",
            shard=place.shard,
            epoch=place.epoch,
        )

    def _ready(self) -> Door:
        """Return the door of any shard that is ready, or of the server itself."""
        if self._stopping:
            raise not_ready()
        if self._doors:
            ready = [place for place, door in self._doors.items() if door.commands is not None]
            if ready:
                return self._doors[min(ready)]
        if self._own is None:
            raise not_ready()
        return self._own


def not_ready() -> LogUnavailable:
    """Return the error of a server that is starting or stopping."""
    return LogUnavailable("the server is starting or stopping; ask again")
