"""Hubs by token: viewers with the same rights share one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import TypeAlias

from magnetar import Client
from magnetar_console.channel import Channel
from magnetar_console.hub import Hub
from magnetar_console.looks.contents import Show
from magnetar_console.looks.view import View
from magnetar_console.pauses import Scans
from magnetar_console.settings import HUBS_MAX, IDLE_S, VIEWERS_MAX
from magnetar_core.clock import Clock
from magnetar_core.transport.transport import Transport

# Connects to the cluster with a token; None: without one.
Connect: TypeAlias = Callable[[str | None], Awaitable[Client]]
# Makes a transport with a token.
NewTransport: TypeAlias = Callable[[str | None], Transport]


class TooManyViewers(Exception):
    """There are as many viewers, views or tokens as the console allows."""


class Viewers:
    """All viewers of a console.

    Args:
        run: identifies this process in the ids of events.
        idle_s: how long a hub without viewers keeps its connection.
        shows: how the values of topics are shown; those of others by their look.
    """

    def __init__(
        self,
        connect: Connect,
        new_transport: NewTransport,
        clock: Clock,
        run: str,
        *,
        viewers_max: int = VIEWERS_MAX,
        idle_s: float = IDLE_S,
        shows: Mapping[str, Show] = MappingProxyType({}),
    ) -> None:
        self._connect = connect
        self._new_transport = new_transport
        self._clock = clock
        self._run = run
        self._viewers_max = viewers_max
        self._idle_s = idle_s
        self._shows = shows
        self._scans = Scans()
        self._hubs: dict[str, Hub] = {}
        self._count = 0
        self._closings: set[asyncio.Task[None]] = set()

    def hub(self, token: str | None) -> Hub:
        """Return the hub of a token. Raises: TooManyViewers."""
        key = "" if token is None else hashlib.sha256(token.encode()).hexdigest()
        hub = self._hubs.get(key)
        if hub is None:
            if len(self._hubs) >= HUBS_MAX:
                raise TooManyViewers(f"{HUBS_MAX} tokens are in use; try again in a minute")
            hub = self._hubs[key] = Hub(
                lambda: self._connect(token),
                lambda: self._new_transport(token),
                self._clock,
                f"{self._run}-{key[:8]}",
                shows=self._shows,
                scans=self._scans,
            )
            self._close_when_idle(key, hub)
        return hub

    def events(self, token: str | None, view: View, last_id: str = "") -> AsyncGenerator[str, None]:
        """Return the events of a view for one viewer; see Channel.events.

        Raises:
            TooManyViewers: there is no room for another one.
        """
        if self._count >= self._viewers_max:
            raise TooManyViewers(f"{self._viewers_max} pages are open already; close one")
        channel = self.hub(token).channel(view)
        if channel is None:
            raise TooManyViewers("too many different views are open; close some")
        return self._counted(channel, last_id)

    async def _counted(self, channel: Channel, last_id: str) -> AsyncGenerator[str, None]:
        self._count += 1
        try:
            async with aclosing(channel.events(last_id)) as events:
                async for event in events:
                    yield event
        finally:
            self._count -= 1

    async def close(self) -> None:
        """End all events, and close all connections."""
        for task in self._closings:
            task.cancel()
        hubs, self._hubs = self._hubs, {}
        await asyncio.gather(*(hub.close() for hub in hubs.values()))

    def _close_when_idle(self, key: str, hub: Hub) -> None:
        async def wait() -> None:
            while True:
                used = hub.used
                await asyncio.sleep(self._idle_s)
                if not hub.is_watched and hub.used == used:
                    del self._hubs[key]
                    await hub.close()
                    return

        task = asyncio.create_task(wait())
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)
