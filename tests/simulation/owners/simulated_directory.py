"""A directory behind the simulated network: calls take their time, are lost, or come late.

What the directory holds is one state, which changes at one moment at a time. What members know of
it is another thing: whoever gets no answer does not know whether there was an effect, and views
come late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, TypeVar

from tests.simulation.trace import Trace
from tests.virtual_loop import VirtualLoop

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.directory.cluster_directory_state import ClusterDirectoryState, Renew, Request
from magnetar_cluster.directory.view import ShardName, ShardOwner, View

Answer = TypeVar("Answer")

# Who gets no answer for so long gives up: two thirds of a lease, as with etcd.
PATIENCE_SECONDS = 0.65
# Of an answer that its member still waits for, and that says less than it seems to: what it granted
# has lasted for a third of a lease already.
STALE_SECONDS = (0.3, 0.62)
# A call that was given up may still arrive.
LATE_SECONDS_MAX = 1.0
TO, BACK = "to", "back"


class SimulatedDirectory:
    """The directory, and what is wrong with the ways to it.

    Attributes:
        loss: how likely a call, or its answer, is lost.
        lag_seconds_max: of a view on its way to a member.
        on_claim: told of each claim at the moment in which it takes effect.
        on_end: told of each ownership that is over.
    """

    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.state = ClusterDirectoryState()
        self.faults: Counter[str] = Counter()
        self.loss = 0.0
        self.lag_seconds_max = 0.05
        self.on_claim: Callable[[ShardName, ShardOwner], None] = lambda shard, owner: None
        self.on_end: Callable[[ShardName, ShardOwner], None] = lambda shard, owner: None
        # What happens as soon as a member has asked something, before it is answered.
        self.when_asked: dict[str, Callable[[], None]] = {}
        self._random = random
        self._trace = trace
        self._shown = self.state.view
        # Its clock stands still while it is away.
        self._lost_seconds = 0.0
        self._away_since: float | None = None
        self._away_until = 0.0
        # By member and direction: until when nothing comes through.
        self._cuts: dict[tuple[str, str], float] = {}
        # Members whose next renewal is answered late, and for how long nothing follows.
        self._stale: dict[str, float] = {}
        self._watches: dict[_Watch, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def view(self) -> View:
        """What it says now."""
        return self.state.view

    def owner(self, shard: ShardName) -> ShardOwner | None:
        return self.state.view.shard_owners.get(shard)

    # Faults.

    def go_away(self, seconds: float) -> None:
        """Nobody is answered, and no lease ends."""
        now = self.loop.time()
        self.faults["directory away"] += 1
        self._trace.event("fault", f"the directory is away for {seconds:.2f} s")
        if self._away_since is None:
            self._away_since = now
        self._away_until = max(self._away_until, now + seconds)
        self.loop.call_later(seconds, self._come_back, context=Context())
        for watch in list(self._watches):
            if self._random.random() < 0.5:
                self._break_later(watch)

    def _come_back(self) -> None:
        now = self.loop.time()
        if self._away_since is not None and now >= self._away_until:
            self._lost_seconds += now - self._away_since
            self._away_since = None
            self._tell_all()
            self._look()

    def cut(self, member: str, direction: str, seconds: float) -> None:
        """Nothing of a member arrives, or no answer gets back to it."""
        self.faults[f"cut from the directory, {direction}"] += 1
        self._trace.event("fault", f"{member} cut from the directory, {direction}, {seconds:.2f} s")
        self._cuts[member, direction] = self.loop.time() + seconds
        for watch in list(self._watches):
            if watch.member == member and self._random.random() < 0.5:
                self._break_later(watch)
        self.loop.call_later(seconds, self._tell_all, context=Context())

    def answer_late(self, member: str, seconds: float) -> None:
        """A member's next renewal is answered late, and is the last that passes for a while."""
        self._stale[member] = seconds

    def heal(self) -> None:
        """All of this ends."""
        self.loss = 0.0
        self._stale.clear()
        self._cuts.clear()
        self._away_until = self.loop.time()
        self._come_back()
        self._tell_all()

    def reaches(self, member: str, direction: str) -> bool:
        if self._away_since is not None:
            return False
        return self._cuts.get((member, direction), 0.0) <= self.loop.time()

    # Time.

    def _now_ms(self) -> float:
        return (self.loop.time() - self._lost_seconds) * 1000

    def _look(self) -> None:
        """End what has to end, tell of what has changed, and look again in time."""
        if self._away_since is not None:
            return
        self.state.expire(self._now_ms())
        self._show()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        end_ms = self.state.next_end_ms()
        if end_ms is not None:
            wait_s = max(0.0, end_ms - self._now_ms()) / 1000 + 1e-6
            self._timer = self.loop.call_later(wait_s, self._look, context=Context())

    def _show(self) -> None:
        before, after = self._shown, self.state.view
        if after is before:
            return
        self._shown = after
        for shard, owner in before.shard_owners.items():
            if after.shard_owners.get(shard) != owner:
                self._trace.event("owner", f"{shard} {owner.epoch} of {owner.member} is over")
                self.on_end(shard, owner)
        for shard, owner in after.shard_owners.items():
            if before.shard_owners.get(shard) != owner:
                self._trace.event("owner", f"{shard} {owner.epoch} is claimed by {owner.member}")
                self.on_claim(shard, owner)
        self._tell_all()

    # Requests.

    def apply(self, request: Request[Answer]) -> Answer:
        """Let it take effect at once: an administrator beside the directory. Raises: as it does."""
        try:
            return self.state.apply(self._now_ms(), request)
        finally:
            self._look()

    def carry(
        self, member: str, request: Request[Any], answer: Callable[[Any, Exception | None], None]
    ) -> None:
        """Let a request take effect some time later, and answer some time after that; or not."""
        asked = self.when_asked.pop(member, None)
        if asked is not None:
            self.loop.call_soon(asked, context=Context())
        delay = self._delay()
        if not self.reaches(member, TO) or self._strikes():
            if self._random.random() < 0.5:
                self.faults["lost calls"] += 1
                return
            self.faults["late calls"] += 1
            delay += self._random.uniform(0.0, LATE_SECONDS_MAX)
        self.loop.call_later(delay, self._handle, member, request, answer, context=Context())

    def _handle(
        self, member: str, request: Request[Any], answer: Callable[[Any, Exception | None], None]
    ) -> None:
        if self._away_since is not None:
            return
        result, error = None, None
        try:
            result = self.apply(request)
        except Exception as raised:
            error = raised
        if isinstance(request, Renew) and member in self._stale:
            self.faults["late renewals"] += 1
            late = self._random.uniform(*STALE_SECONDS)
            self.loop.call_later(late, answer, result, error, context=Context())
            seconds = self._stale.pop(member)
            self.cut(member, TO, seconds)
            self.cut(member, BACK, seconds)
            return
        if not self.reaches(member, BACK) or self._strikes():
            self.faults["lost answers"] += 1
            return
        self.loop.call_later(self._delay(), answer, result, error, context=Context())

    def _strikes(self) -> bool:
        return self.loss > 0.0 and self._random.random() < self.loss

    def _delay(self) -> float:
        delay = self._random.uniform(0.0005, 0.005)
        return delay + (self._random.uniform(0.0, 0.1) if self._random.random() < 0.02 else 0.0)

    # Watches.

    def begin_watch(self, watch: _Watch) -> None:
        self._watches[watch] = None
        self._tell(watch)

    def end_watch(self, watch: _Watch) -> None:
        self._watches.pop(watch, None)

    def _tell_all(self) -> None:
        for watch in list(self._watches):
            self._tell(watch)

    def _tell(self, watch: _Watch) -> None:
        if not self.reaches(watch.member, BACK):
            return
        lag = self._delay() + self._random.random() ** 3 * self.lag_seconds_max
        self.loop.call_later(lag, watch.deliver, self.state.view, context=Context())

    def _break_later(self, watch: _Watch) -> None:
        self.loop.call_later(self._random.uniform(0.0, 0.5), watch.fail, context=Context())


class Way:
    """A member's way to the directory: magnetar_cluster.directory.memory_directory.Service."""

    def __init__(self, directory: SimulatedDirectory, member: str) -> None:
        self._directory = directory
        self._member = member

    async def ask(self, request: Request[Answer]) -> Answer:
        """Raises: ClusterDirectoryUnavailable: with or without an effect."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        timer = loop.call_later(PATIENCE_SECONDS, _give_up, future)
        self._directory.carry(self._member, request, partial(_answer, future))
        try:
            return await future
        finally:
            timer.cancel()

    async def watch(self) -> AsyncGenerator[View, None]:
        if not self._directory.reaches(self._member, TO):
            await asyncio.sleep(PATIENCE_SECONDS)
            raise ClusterDirectoryUnavailable("the directory does not answer")
        watch = _Watch(self._member)
        self._directory.begin_watch(watch)
        try:
            while True:
                yield await watch.next()
        finally:
            self._directory.end_watch(watch)


class _Watch:
    """Views as they come to one member; those in between are left out at times."""

    def __init__(self, member: str) -> None:
        self.member = member
        self._newest: View | None = None
        self._told_revision = -1
        self._broken = False
        self._waiting: asyncio.Future[None] | None = None

    async def next(self) -> View:
        while self._newest is None or self._newest.revision <= self._told_revision:
            if self._broken:
                raise ClusterDirectoryUnavailable("the watch broke")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._told_revision = self._newest.revision
        return self._newest

    def deliver(self, view: View) -> None:
        if self._newest is None or view.revision > self._newest.revision:
            self._newest = view
            self._wake()

    def fail(self) -> None:
        self._broken = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def _answer(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(ClusterDirectoryUnavailable("no answer in time"))
