"""Attempts that a member's decisions ask for: claims, openings, handovers and their ends.

Each runs by itself, and reports its outcome. Source: docs/design/0009-owners.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from magnetar_cluster.background import Background, outcome_of
from magnetar_cluster.directory.cluster_directory import ClusterDirectory, LeaseExpired, LeaseId
from magnetar_cluster.directory.view import ShardName
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host_actions import Abandon, Action, Claim, Close, Open, Release
from magnetar_cluster.hosting.host_state import HostState
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOpener, ShardOwnership

_LOG = logging.getLogger(__name__)
# How long the end of a lost shard may take. Then it is left alone: it may not speak, and its next
# owner fences it.
_CANCELLING_S_MAX = 1.0
_ABANDONING_S_MAX = 5.0


@dataclass(slots=True)
class HostCounts:
    """Counts of what happened to the shards of a member since its start.

    Attributes:
        openings: shards that were opened.
        openings_failed: attempts to open a shard that failed.
        handovers: shards that were closed in order for another member.
        failed: open shards that ended by themselves.
        lost: open shards that had to end at once, since another member may have had them.
    """

    openings: int = 0
    openings_failed: int = 0
    handovers: int = 0
    failed: int = 0
    lost: int = 0


class ShardAttempts:
    """Runs attempts.

    Args:
        expired: called when the directory says that a lease has ended.
        step: called when an outcome was reported: there may be new decisions.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        opener: ShardOpener,
        state: HostState,
        settings: HostSettings,
        member: str,
        *,
        now_ms: Callable[[], float],
        expired: Callable[[LeaseId], None],
        step: Callable[[], None],
    ) -> None:
        self.counts = HostCounts()
        self._directory = directory
        self._opener = opener
        self._state = state
        self._settings = settings
        self._member = member
        self._now_ms = now_ms
        self._expired = expired
        self._step = step
        self._running: dict[int, RunningShard] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._closing: dict[int, asyncio.Task[None]] = {}
        self._ending = False
        self._background = Background()

    def begin(self, actions: Iterable[Action]) -> None:
        """Begin attempts, and end openings that have become useless."""
        for epoch in self._state.useless_openings():
            # It may wait for an answer, and may no longer ask.
            if (opening := self._opening.get(epoch)) is not None and not opening.cancelling():
                opening.cancel()
        for action in actions:
            match action:
                case Claim():
                    self._background.start(self._claim(action))
                case Open():
                    opening = self._background.start(self._open(action))
                    self._opening[action.epoch] = opening
                    opening.add_done_callback(partial(self._opening_ended, action))
                case Close():
                    self._closing[action.epoch] = self._background.start(self._close(action))
                case Abandon():
                    closing = self._closing.pop(action.epoch, None)
                    self._background.start(self._abandon(action, closing))
                case Release():
                    self._background.start(self._release(action))

    def end_begins(self) -> None:
        """Note that the server ends: shards that it loses from now on are not reported."""
        self._ending = True
        self.cancel_openings()

    def cancel_openings(self) -> None:
        """End all openings, as if they had failed."""
        for task in self._opening.values():
            task.cancel()

    async def end(self) -> None:
        """End all attempts."""
        await self._background.end()

    async def _claim(self, action: Claim) -> None:
        try:
            epoch = await outcome_of(
                self._directory.claim(action.lease, action.shard, self._member)
            )
        except LeaseExpired:
            self._expired(action.lease)
        except Exception as error:
            _LOG.info("a claim of %s was not answered: %s", action.shard, error)
            self._state.unanswered(action, self._now_ms())
        else:
            self._state.claimed(action, epoch, self._now_ms())
        self._step()

    async def _open(self, action: Open) -> None:
        shard, epoch = action.shard, action.epoch
        ownership = ShardOwnership(
            shard=shard,
            epoch=epoch,
            may_speak=lambda: self._state.speaks(shard, epoch),
            on_end=lambda error: self._failed(shard, epoch, error),
        )
        _LOG.info("%s opens %s in epoch %d", self._member, shard, epoch)
        try:
            running = await outcome_of(self._opener.open(ownership))
        except Exception as error:
            self.counts.openings_failed += 1
            _LOG.warning("%s cannot open %s: %s", self._member, shard, _text(error))
            self._state.not_opened(action, _text(error), self._now_ms())
        else:
            self.counts.openings += 1
            self._running[epoch] = running
            self._state.opened(action, self._now_ms())
        self._step()

    def _opening_ended(self, action: Open, opening: asyncio.Task[None]) -> None:
        """Report an opening that has ended. A cancelled one cannot do so: it may not have begun."""
        self._opening.pop(action.epoch, None)
        if opening.cancelled():
            if overdue := self._state.slots[action.shard].overdue:
                self.counts.openings_failed += 1
                _LOG.warning("%s cannot open %s: %s", self._member, action.shard, overdue)
            self._state.not_opened(action, "the shard was lost", self._now_ms())
            self._step()

    def _failed(self, shard: ShardName, epoch: int, error: BaseException) -> None:
        """An open shard has ended by itself. Late news of one that is gone means nothing."""
        if not self._state.failed(shard, epoch, _text(error), self._now_ms()):
            return
        self.counts.failed += 1
        _LOG.warning("%s in epoch %d has ended at %s: %s", shard, epoch, self._member, _text(error))
        # The shard may be in the middle of something; what follows begins after that.
        asyncio.get_running_loop().call_soon(self._step)

    async def _close(self, action: Close) -> None:
        _LOG.info("%s hands over %s", self._member, action.shard)
        try:
            async with asyncio.timeout(self._settings.handover_ms_max / 1000):
                await outcome_of(self._running[action.epoch].close())
        except Exception as error:
            _LOG.warning("%s could not be closed in order: %s", action.shard, _text(error))
            self._state.not_closed(action, self._now_ms())
        else:
            self.counts.handovers += 1
            del self._running[action.epoch]
            self._state.closed(action, self._now_ms())
        finally:
            self._closing.pop(action.epoch, None)
        self._step()

    async def _abandon(self, action: Abandon, closing: asyncio.Task[None] | None) -> None:
        if action.lost and not self._ending:
            self.counts.lost += 1
            _LOG.warning("%s is lost to %s: it ends here", action.shard, self._member)
        if closing is not None:
            closing.cancel()
            await asyncio.wait([closing], timeout=_CANCELLING_S_MAX)
        running = self._running.pop(action.epoch, None)
        try:
            async with asyncio.timeout(_ABANDONING_S_MAX):
                if running is not None:
                    await outcome_of(running.abandon())
        except Exception as error:
            _LOG.error("%s did not end as it should: %s", action.shard, _text(error))
        self._state.abandoned(action, self._now_ms())
        self._step()

    async def _release(self, action: Release) -> None:
        try:
            await outcome_of(self._directory.release(action.shard, action.epoch))
        except Exception as error:
            _LOG.info("a claim of %s was not given back: %s", action.shard, error)
            self._state.unanswered(action, self._now_ms())
        else:
            self._state.released(action, self._now_ms())
        self._step()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
