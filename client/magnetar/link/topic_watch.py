"""Looks topics up again, from time to time, to see whether they have more partitions.

A producer, a consumer of a whole topic and a reader that follows it use new partitions when the
client learns of them. Nothing is lost until then: a subscription begins at the beginning of them.
Source: docs/design/0025-topics-that-change.md, Clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from magnetar.link.members import Lookup
from magnetar.link.runtime import Runtime
from magnetar_core.errors import MagnetarError


class Watching(Protocol):
    """A user of a topic, who learns of its partitions."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    def learn(self, found: Lookup) -> None:
        """Take the answer of a broker to a look-up."""
        ...


class TopicWatch:
    """The topics that a client uses, each of which is looked up once in `topic_refresh_ms`."""

    def __init__(self, runtime: Runtime, look_up: Callable[[str], Awaitable[Lookup]]) -> None:
        self._runtime = runtime
        self._look_up = look_up
        self._routes: dict[Watching, None] = {}
        self._watching: asyncio.Task[None] | None = None

    def add(self, route: Watching) -> None:
        """Let a route learn of its topic from now on."""
        self._routes[route] = None
        if self._watching is None:
            runtime = self._runtime
            self._watching = runtime.spawn(self._watch, "look topics up again", runtime.fail)

    def remove(self, route: Watching) -> None:
        """Let a route learn nothing further."""
        self._routes.pop(route, None)

    def stop(self) -> None:
        """Look nothing up again: the client ends."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while self._routes:
            # Clients that began together do not ask together.
            period_s = self._runtime.config.topic_refresh_ms / 1000
            await asyncio.sleep(period_s * self._runtime.random.uniform(0.75, 1.25))
            for topic in dict.fromkeys(route.topic for route in self._routes):
                try:
                    found = await self._look_up(topic)
                except MagnetarError:
                    continue  # What needs the topic is refused, or waits; this comes again.
                for route in [one for one in self._routes if one.topic == topic]:
                    route.learn(found)
        self._watching = None
