"""Decides when a client asks for the members again, because shards may have other owners.

It asks soon after a server has told of a change, again and again while a call waits for a shard,
now and then while a request stays without an answer, and seldom otherwise: a server that sleeps
keeps its links, and does not tell its clients that it has lost its shards. One question is under
way at a time.
Source: docs/design/0009-owners.md, Addresses.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from magnetar.link.runtime import Runtime
from magnetar_core.backoff import Backoff
from magnetar_core.errors import MagnetarError

log = logging.getLogger("magnetar")

# A change is told to all clients at once: they do not ask all at once.
JITTER_MS_MAX = 30.0
# How long a call waits for a link before the client asks whether another server has the shard.
LINK_PATIENCE_MS = 100.0
# The time between two questions while a call waits for a shard.
HUNT_MS_MIN, HUNT_MS_MAX = 20.0, 250.0
# The same while a request stays without an answer.
SILENCE_PERIOD_MS = 500.0
# The same when nothing seems to be wrong.
LOOK_PERIOD_MS = 2_000.0


class OwnerWatch:
    """Asks for the members when it is time to."""

    def __init__(
        self,
        runtime: Runtime,
        ask: Callable[[int], Awaitable[object]],
        *,
        is_hunting: Callable[[], bool],
        is_following: Callable[[], bool],
    ) -> None:
        """Make a watch that has not asked yet.

        Args:
            ask: asks for the members; told how many questions in a row did not find what is hunted.
            is_hunting: whether a call waits for a link to a shard.
            is_following: whether there are links to shards that may change their owner.
        """
        self._runtime = runtime
        self._ask = ask
        self._is_hunting = is_hunting
        self._is_following = is_following
        self._backoff = Backoff(HUNT_MS_MIN, HUNT_MS_MAX, runtime.random)
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = math.inf
        self._asked_at_ms = -math.inf
        self._asking = False
        # Told of a change while a question was under way: its answer may be from before the change.
        self._heard = False
        self._closed = False

    def heard(self) -> None:
        """A server has told that shards have other owners."""
        if self._asking:
            self._heard = True
        self._ask_within(self._runtime.random.random() * JITTER_MS_MAX)

    def waits(self) -> None:
        """Note that a call waits for a link to a shard."""
        self._ask_within(LINK_PATIENCE_MS)

    def lost(self) -> None:
        """Note that a shard is not at its last address."""
        # Later questions come by themselves, with pauses.
        if not self._backoff.failures:
            self._ask_within(0.0)

    def silent(self) -> None:
        """A server leaves a request without an answer."""
        since_ms = self._runtime.now_ms() - self._asked_at_ms
        self._ask_within(max(0.0, SILENCE_PERIOD_MS - since_ms))

    def look(self) -> None:
        """Look now and then from now on."""
        self._ask_within(LOOK_PERIOD_MS * (0.75 + self._runtime.random.random() / 2))

    def close(self) -> None:
        """Stop asking."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _ask_within(self, delay_ms: float) -> None:
        due_ms = self._runtime.now_ms() + delay_ms
        if self._closed or self._asking or due_ms >= self._due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._runtime.call_later(self._runtime.fail, delay_ms, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        self._due_ms = math.inf
        self._asking = True
        self._runtime.spawn(self._question, "ask who has the shards", self._runtime.fail)

    async def _question(self) -> None:
        try:
            if self._is_hunting() or self._is_following():
                self._asked_at_ms = self._runtime.now_ms()
                await self._ask(self._backoff.failures)
        except MagnetarError as error:
            log.info("the list of the cluster's members could not be renewed: %s", error)
        finally:
            self._asking = False
            heard, self._heard = self._heard, False
            if heard:
                self.heard()
            elif self._is_hunting():
                self._ask_within(self._backoff.next_ms())
            else:
                self._backoff.reset()
                self.look()
