"""Group commit that lets plain messages leave before they are synced.

A group is written: from then on it outlives the process, since the operating system has it. Answers
that were parked with when_written() leave. Answers that were parked with when_durable() leave after
a sync, which begins as soon as a caller waits for it, and one sync serves all groups that were
written until it began. Meanwhile the next groups are written. Groups for which no caller waits are
synced after `sync_interval_ms`.
Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_core.history.events import Durable, Written
from magnetar_core.history.history import History
from magnetar_storage.group_commit import GroupCommit, Observe
from magnetar_storage.ready_callbacks import ReadyCallbacks
from magnetar_storage.store import Store, WriteBatch


class LateSyncCommit(GroupCommit):
    """The only writer of a store that is synced later than it is written.

    Args:
        on_failure: as for GroupCommit.
        observe: called for each group when it is written, not when it is synced.
        history: as for GroupCommit.
        sync_interval_ms: how long a group waits for a sync if no caller waits for it.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_failure: Callable[[BaseException], None],
        observe: Observe | None = None,
        history: History | None = None,
        sync_interval_ms: int,
    ) -> None:
        super().__init__(store, on_failure=on_failure, observe=observe, history=history)
        self._sync_interval_s = sync_interval_ms / 1_000
        self._durable_position = 0
        # In the order of the calls, with their positions.
        self._unsynced_callbacks: list[tuple[int, Callable[[], None]]] = []
        # Positions for which a caller waits that is in a hurry.
        self._awaited: set[int] = set()
        self._synced = ReadyCallbacks()
        self._sync_wanted = asyncio.Event()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        # When the oldest group was written that is not durable, on the event loop's clock.
        self._unsynced_since: float | None = None

    @property
    def durable_position(self) -> int:
        """Everything up to here outlives the machine."""
        return self._durable_position

    def seconds_unsynced(self) -> float:
        """Return how long the oldest written group has waited for a sync; see GroupCommit."""
        if self._unsynced_since is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._unsynced_since

    def when_durable(self, position: int, *callbacks: Callable[[], None]) -> None:
        """Call back at once if position is durable, else after a sync; see when_written()."""
        if position <= self._durable_position:
            self._synced.call(*callbacks)
            return
        if not self._may_park(position):
            return
        self._unsynced_callbacks += [(position, callback) for callback in callbacks]
        if self.hurries:
            self._awaited.add(position)
            if position > self._sealed_position:
                self._wake.set()
            elif position <= self.written_position:
                self._sync_wanted.set()

    async def start(self) -> None:
        """Begin to write groups, and to sync them."""
        await super().start()
        self._syncing = asyncio.get_running_loop().create_task(self._sync(), name="late-sync")

    async def close(self) -> None:
        """Make all appended rows durable; see GroupCommit.close()."""
        try:
            await super().close()
        finally:
            await self._stop_syncing()

    async def _write(self, batch: WriteBatch) -> None:
        await self._store.write(batch)
        loop = asyncio.get_running_loop()
        if self._unsynced_since is None:
            self._unsynced_since = loop.time()
        if self._sync_timer is None:
            self._sync_timer = loop.call_later(self._sync_interval_s, self._sync_wanted.set)

    async def _commit(self) -> None:
        await super()._commit()
        self._sync_if_awaited()

    def _sync_if_awaited(self) -> None:
        if self._awaited and min(self._awaited) <= self.written_position:
            self._sync_wanted.set()

    def _note_written(self) -> None:
        if self._history is not None:
            self._history.note(Written(self.written_position))

    def _finish(self) -> bool:
        if self._durable_position == self.written_position:
            return True
        self._sync_wanted.set()
        return False

    async def _sync(self) -> None:
        try:
            while True:
                await self._sync_wanted.wait()
                # A group that is written in this turn of the event loop joins.
                await asyncio.sleep(0)
                self._sync_wanted.clear()
                if self._durable_position < self.written_position:
                    await self._sync_once()
                if self._closing:
                    self._wake.set()
        except Exception as error:
            if self._failure is None:
                self._fail(error)
                if self._task is not None:
                    # What is in memory must not be written on top of what may be lost.
                    self._task.cancel()
                self._on_failure(error)

    async def _sync_once(self) -> None:
        self._stop_timer()
        began_at = asyncio.get_running_loop().time()
        target = self.written_position
        await self._store.sync()
        if self._failure is not None:
            return
        self._durable_position = target
        if self._history is not None:
            self._history.note(Durable(target))
        # A later group was written after this sync began, at the earliest.
        self._unsynced_since = began_at if self.written_position > target else None
        self._awaited = {one for one in self._awaited if one > target}
        self._sync_if_awaited()
        waiting = self._unsynced_callbacks
        self._unsynced_callbacks = [one for one in waiting if one[0] > target]
        self._synced.run([callback for position, callback in waiting if position <= target])

    async def _stop_syncing(self) -> None:
        self._stop_timer()
        if self._syncing is not None:
            self._syncing.cancel()
            await asyncio.wait([self._syncing])

    def _stop_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _fail(self, error: BaseException) -> None:
        super()._fail(error)
        self._unsynced_callbacks.clear()
        self._awaited.clear()
        self._stop_timer()
        if self._syncing is not None and self._syncing is not asyncio.current_task():
            self._syncing.cancel()
