"""Lets time pass for a cluster and its clients at once: see shifted_time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from magnetar.testing.links import MemoryNetwork
from magnetar.testing.paced_loop import PacedLoop
from magnetar.testing.shifted_time import LOOK_S, TURNS_MAX, FollowedLoop, ShiftedClock

# A loop that does not come to rest within this time is not waited for: a callback blocks it.
REST_S_MAX = 2.0
# Time goes on by this much at least ...
STEP_S_MIN = 0.01
# ... and where a long time passes, by this part of it, unless a client's timer is due: servers look
# ten times a second for what they have to do, and do it so much later then.
SHARE_MIN = 1 / 10_000


class Passing:
    """Lets time pass, on the servers' loop.

    Args:
        clock: the servers'.
        followed: returns the loops of clients.
    """

    def __init__(
        self,
        loop: PacedLoop,
        clock: ShiftedClock,
        network: MemoryNetwork,
        followed: Callable[[], Iterable[FollowedLoop]],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._network = network
        self._followed = followed
        self._turn = asyncio.Lock()
        self._least_s = STEP_S_MIN

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, from one timer to the next."""
        async with self._turn:
            remaining_s = seconds
            self._least_s = max(STEP_S_MIN, seconds * SHARE_MIN)
            await self._rest(everywhere=True)
            while remaining_s > 0:
                step_s = min(remaining_s, max(STEP_S_MIN, self._until_due_s()))
                remaining_s -= step_s
                self._clock.shift_s += step_s
                for one in self._followed():
                    one.clock.shift_s += step_s
                await self._rest()
            await self._rest(everywhere=True)

    def _until_due_s(self) -> float:
        """Return how long it takes until the next timer of any loop."""
        due_s = self._loop.next_due()
        until_s = LOOK_S if due_s is None else due_s - self._clock.now_s()
        found = [max(self._least_s, until_s)]
        for one in self._followed():
            found.append(0.0 if one.due_s is None else one.due_s - one.clock.now_s())
        return min(found)

    async def _rest(self, *, everywhere: bool = False) -> None:
        """Wait until no loop has anything to do at this moment, and no frame is under way."""
        for _ in range(TURNS_MAX):
            posted_count = self._network.posted_count
            await self._rest_here()
            for one in list(self._followed()):
                now_s = one.clock.now_s()
                is_due = one.due_s is None or one.due_s <= now_s
                has_heard = one.posted_count != self._network.posted_count
                if (
                    everywhere
                    or is_due
                    or has_heard
                    or now_s - one.looked_s > max(LOOK_S, self._least_s)
                ):
                    one.posted_count = self._network.posted_count
                    await self._rest_there(one)
            await self._rest_here()
            if posted_count == self._network.posted_count:
                return

    async def _rest_here(self) -> None:
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not self._loop.has_work():
                return

    async def _rest_there(self, one: FollowedLoop) -> None:
        if one.is_stuck:
            # It has not answered yet, and is not waited for again until it does.
            one.due_s = float("inf")
            return
        rested: asyncio.Future[None] = self._loop.create_future()
        one.is_stuck = True

        def rest() -> None:
            one.is_stuck = False
            if not rested.done():
                rested.set_result(None)

        post = partial(self._loop.call_soon_threadsafe, rest)
        if one.rest(lambda: _quietly(post)):
            # Real time: this clock stands between the steps.
            await asyncio.wait((rested,), timeout=REST_S_MAX)
        else:
            one.is_stuck = False
            one.due_s = float("inf")


def _quietly(post: Callable[[], object]) -> None:
    try:
        post()
    except RuntimeError:
        pass  # The cluster has ended.
