"""How time passes for a cluster and its clients at once: see shifted_time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from magnetar.testing.links import MemoryNetwork
from magnetar.testing.paced_loop import PacedLoop
from magnetar.testing.shifted_time import LOOK_S, TURNS_MAX, FollowedLoop, ShiftedClock

# A loop that does not come to rest within this time is not waited for: a callback blocks it.
REST_S_MAX = 5.0
# Time goes on by this much at least, and by so much more where a long time passes: timers are that
# late then, as on a busy machine. It stays below the heartbeats of group members.
STEP_S_MIN = 0.01
STEP_S_MIN_MAX = 1.0
STEPS_MAX = 10_000


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

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, from one timer to the next."""
        async with self._turn:
            remaining_s = seconds
            least_s = min(STEP_S_MIN_MAX, max(STEP_S_MIN, seconds / STEPS_MAX))
            await self._rest(everywhere=True)
            while remaining_s > 0:
                step_s = min(remaining_s, max(least_s, self._until_due_s()))
                remaining_s -= step_s
                self._clock.shift_s += step_s
                for one in self._followed():
                    one.clock.shift_s += step_s
                await self._rest()
            await self._rest(everywhere=True)

    def _until_due_s(self) -> float:
        """Return how long it takes until the next timer of any loop."""
        due_s = self._loop.next_due()
        found = [LOOK_S if due_s is None else due_s - self._clock.now_s()]
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
                if everywhere or is_due or has_heard or now_s - one.looked_s > LOOK_S:
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
        rested: asyncio.Future[None] = self._loop.create_future()

        def rest() -> None:
            if not rested.done():
                rested.set_result(None)

        post = partial(self._loop.call_soon_threadsafe, rest)
        if one.rest(lambda: _quietly(post)):
            # Real time: this clock stands between the steps.
            await asyncio.wait((rested,), timeout=REST_S_MAX)
        else:
            one.due_s = float("inf")


def _quietly(post: Callable[[], object]) -> None:
    try:
        post()
    except RuntimeError:
        pass  # The cluster has ended.
