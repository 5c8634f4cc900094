"""A member's part in the ownership of shards: its lease, what it saw, and the shards it has.

HostState decides, ShardAttempts does, MemberLease keeps the member in the directory; here they are
put together. Source: docs/design/0009-owners.md, Placement of shards; Zombies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from magnetar_cluster.background import Background
from magnetar_cluster.directory.cluster_directory import ClusterDirectory, ClusterDirectoryWentBack
from magnetar_cluster.directory.view import Format, Member, MemberName, ShardName, View
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host_state import HostState
from magnetar_cluster.hosting.lease import Lease
from magnetar_cluster.hosting.member_lease import MemberLease
from magnetar_cluster.hosting.shard_attempts import HostCounts, ShardAttempts
from magnetar_cluster.hosting.shard_opener import ShardOpener
from magnetar_cluster.hosting.shard_phase import ShardPhase
from magnetar_core.backoff import Backoff

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """A shard that a member has, asks for, or could not have.

    Attributes:
        phase: GONE: the member has nothing of it at the moment, since it failed.
        epoch: of the ownership; 0: there is none, or it is not known yet.
        failures: openings and runs in a row that failed.
        reason: of the last failure; empty: the shard was opened since.
    """

    phase: ShardPhase
    epoch: int
    failures: int
    reason: str


class Host:
    """Takes, opens, keeps and hands over shards of one kind, on behalf of one member.

    Attributes:
        on_view: called with each later view.
        on_speech: called with False when the member has to be silent: all conversations of its
            shards are to be ended at once, and none taken. Called with True when it may speak; it
            begins in silence.
        on_change: called when a shard's phase, or the lease, may have changed.
        on_failure: called once with the reason why this host can no longer be used. It is silent by
            then, and its shards end; only a new process can continue.

    Args:
        cluster_format: how many shards there are.
        name: of this member; its kind says which shards it takes.
        now_ms: a clock that counts sleep.
        random: for pauses.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        opener: ShardOpener,
        settings: HostSettings,
        *,
        cluster_format: Format,
        name: MemberName,
        member: Member,
        now_ms: Callable[[], float],
        random: Random,
    ) -> None:
        self.on_view: list[Callable[[View], None]] = []
        self.on_speech: list[Callable[[bool], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self.on_failure: list[Callable[[ClusterDirectoryWentBack], None]] = []
        self._directory = directory
        self._settings = settings
        self._name = name
        self._member = member
        self._now_ms = now_ms
        self._random = random
        self._state = HostState(name, cluster_format.shards(name.kind), settings, random)
        self._keeper = MemberLease(
            directory, settings, name, member, self, now_ms=now_ms, random=random
        )
        self._attempts = ShardAttempts(
            directory,
            opener,
            self._state,
            settings,
            name.name,
            now_ms=now_ms,
            expired=self._keeper.expired,
            step=self._step,
        )
        self._background = Background()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._closed = self._failed = False
        self._watch_broken_at_ms: float | None = now_ms()
        self._silent_since_ms: float | None = now_ms()

    # For servers.

    @property
    def view(self) -> View:
        """The latest view; none yet has revision 0."""
        return self._state.view

    @property
    def lease(self) -> Lease | None:
        """The member's lease; None: it has none."""
        return self._keeper.lease

    @property
    def joined(self) -> bool:
        """Whether the member's row is written under its present lease."""
        return self._state.joined

    @property
    def shards(self) -> Mapping[ShardName, ShardStatus]:
        """The shards that this member has, asks for, or could not have."""
        return {
            shard: ShardStatus(
                phase=slot.held.phase if slot.held is not None else ShardPhase.GONE,
                epoch=slot.held.epoch if slot.held is not None else 0,
                failures=slot.failures,
                reason=slot.reason,
            )
            for shard, slot in self._state.slots.items()
            if slot.held is not None or slot.reason
        }

    @property
    def refused(self) -> tuple[int, ...]:
        """The numbers of the shards that this member could not open, and leaves to others."""
        return self._state.refused

    @property
    def counts(self) -> HostCounts:
        """Counts of openings, handovers and losses of the member's shards."""
        return self._attempts.counts

    @property
    def renewals_failed(self) -> int:
        """Number of lease renewals that were refused, or not answered."""
        return self._keeper.renewals_failed

    @property
    def leases_lost(self) -> int:
        """Number of leases that ended although the member did not give them up."""
        return self._keeper.leases_lost

    @property
    def unowned(self) -> int:
        """Number of shards of the member's kind without an owner, as far as it knows."""
        view = self._state.view
        return (
            sum(shard not in view.shard_owners for shard in self._state.slots)
            if view.revision
            else 0
        )

    def view_age_ms(self) -> float:
        """Return for how long the view may have been out of date: since its watch broke."""
        broken_at_ms = self._watch_broken_at_ms
        return 0.0 if broken_at_ms is None else self._now_ms() - broken_at_ms

    def may_speak(self) -> bool:
        """Return whether the member's lease lets it speak at this moment."""
        return self._keeper.may_speak()

    async def start(self) -> None:
        """Begin. Returns at once: the directory need not answer yet."""
        self._keeper.start()
        self._background.start(self._watch())

    async def drain(self) -> str:
        """Hand over all shards, and leave.

        It ends when each shard has another owner, or no other member can have it; or else when it
        has taken as long as it may, or the member has been silent for so long that its lease has
        ended: then there is nothing left to hand over. It may also be cancelled.

        Returns:
            Why shards are left, which close() ends without a last write; empty: none is.
        """
        began_ms = self._now_ms()
        self._state.leave()
        # They would be handed over as soon as they are open, and may wait for others that stop too.
        self._attempts.cancel_openings()
        self._say(replace(self._member, leaving=True))
        self._step()
        while not self._state.is_empty():
            self._changed.clear()
            ends_at_ms, reason = self._patience(began_ms)
            wait_ms = ends_at_ms - self._now_ms()
            if wait_ms <= 0:
                return reason
            with contextlib.suppress(TimeoutError):
                # At least a millisecond: the loop's clock and this one need not agree.
                async with asyncio.timeout(max(wait_ms, 1.0) / 1000):
                    await self._changed.wait()
        await self._keeper.end()
        return ""

    async def close(self) -> None:
        """End at once: abandon what is open, and give up the lease. Repeating it is harmless."""
        if self._closed:
            return
        self._closed = True
        self._state.leave()
        self._attempts.end_begins()
        self._keeper.give_up()
        self._step()
        # What is left after that hangs, and may not hold up the end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.handover_ms_max / 1000):
                while self._state.has_shards():
                    self._changed.clear()
                    await self._changed.wait()
        # Not before: another member may have the shards at once.
        await self._keeper.end()
        if self._timer is not None:
            self._timer.cancel()
        await self._attempts.end()
        await self._background.end()

    # For the lease's keeper.

    def lease_begun(self, lease: Lease) -> None:
        """The member has a new lease."""
        self._state.lease_begun(lease)
        self._step()

    def row_written(self) -> None:
        """The member's row is written."""
        self._state.row_written()
        self._step()

    def lease_ended(self) -> None:
        """The lease is over: all shards end."""
        self._state.lease_ended(self._now_ms())
        self._step()

    def speech_changed(self, may_speak: bool) -> None:
        """The member has to be silent, or may speak again."""
        self._silent_since_ms = None if may_speak else self._now_ms()
        for tell in self.on_speech:
            self._tell(tell, may_speak)
        self._step()

    def went_back(self, error: ClusterDirectoryWentBack) -> None:
        """End all shards: the directory is at an earlier state, and others may have them."""
        if self._failed:
            return
        self._failed = True
        self._state.leave()
        self._keeper.give_up()
        self._step()
        for tell in self.on_failure:
            self._tell(tell, error)

    def _patience(self, began_ms: float) -> tuple[float, str]:
        """Return until when a member that stops waits for handovers, and why not longer."""
        longest_ms = self._settings.leaving_ms_max
        ends_at_ms, reason = began_ms + longest_ms, f"it took longer than {longest_ms} ms"
        if self._silent_since_ms is not None:
            silent_until_ms = (
                max(self._silent_since_ms, began_ms) + self._settings.lease_duration_ms
            )
            if silent_until_ms < ends_at_ms:
                return silent_until_ms, "the directory does not answer"
        return ends_at_ms, reason

    # The watch.

    async def _watch(self) -> None:
        backoff = Backoff(
            self._settings.constants.directory_pause_ms_min,
            self._settings.constants.directory_pause_ms_max,
            self._random,
        )
        while True:
            try:
                async with contextlib.aclosing(self._directory.watch()) as views:
                    async for view in views:
                        backoff.reset()
                        self._watch_broken_at_ms = None
                        self._saw(view)
            except (Exception, asyncio.CancelledError) as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                if isinstance(error, ClusterDirectoryWentBack):
                    self.went_back(error)
                    return
                _LOG.info("the watch of %s broke: %s", self._name.name, error)
            if self._watch_broken_at_ms is None:
                self._watch_broken_at_ms = self._now_ms()
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _saw(self, view: View) -> None:
        if not self._state.saw(view, self._now_ms()):
            return
        # The row is gone, or an earlier one was written late. A row that is right by now is left as
        # it is, and makes no new view.
        if self._state.lease is not None and view.members.get(self._name) != self._member:
            self._keeper.write_row()
        self._step()
        for tell in self.on_view:
            self._tell(tell, view)

    def _step(self) -> None:
        """Carry out the present decisions, and set the timer for the next ones."""
        now_ms = self._now_ms()
        self._attempts.begin(self._state.decide(now_ms))
        if self._state.refused != self._member.refused:
            self._say(replace(self._member, refused=self._state.refused))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes_at_ms = self._state.wakes_at_ms
        if wakes_at_ms is not None:
            # At least a millisecond: the loop's clock and this one need not agree.
            wait_s = max(wakes_at_ms - now_ms, 1.0) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._step)
        self._changed.set()
        for tell in self.on_change:
            self._tell(tell)

    def _say(self, member: Member) -> None:
        """Say something else of this member."""
        self._member = member
        self._keeper.write_row(member)

    def _tell(self, tell: Callable[..., None], *news: object) -> None:
        """Call a listener; an exception in it is logged and does not stop the watch."""
        try:
            tell(*news)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a listener of the cluster failed", "exception": error}
            )
