"""Group commit: a single write and a single sync for all changes of the meantime.

A state change puts its rows into the open group and is applied in memory at once. Its reply is
parked here until the group is durable. A task seals the open group, writes it and syncs, while the
next group fills. Groups are numbered from 1; the number of a group is the *position* of its
content. Nothing of a group leaves the process before the group is durable.

Rows for which no caller waits yet are *unhurried*: alone they begin no group, but join the next
one. A sync, or a put to an object store, is then left for rows for which a caller waits.

Time comes from the event loop only, and there is no thread here: under a loop with virtual time a
run is repeated exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from magnetar_core.history.events import Durable, Sealed
from magnetar_core.history.history import History
from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.ready_callbacks import ReadyCallbacks, guard
from magnetar_storage.store import Store, StoreFailed, WriteBatch

# Takes the count of operations, the bytes, and the seconds of the group's write and sync.
Observe = Callable[[int, int, float], None]

# How long unhurried rows wait for a group. With an object store at the other end of a region, a
# client's next command that needs a group comes within a few puts of 50 ms each.
UNHURRIED_SECONDS: Final = 0.2
# While a group is synced, the store is told of the open one each time that it has grown by so much.
AHEAD_BYTES_MIN: Final = 64 << 10


class _Unhurried:
    """Block of `GroupCommit.unhurried`. A generator would cost three times as much."""

    __slots__ = ("_commits", "_hurried")

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self._hurried = commits.hurries

    def __enter__(self) -> None:
        self._commits.hurries = False

    def __exit__(self, *_: object) -> None:
        self._commits.hurries = self._hurried


class GroupCommit:
    """The only writer of a store. Each group is synced before anything of it leaves.

    `LateSyncCommit` is the variant that syncs later.

    A failed write or sync is never retried, since memory already runs ahead of the store: every
    parked callback is dropped, waiters get StoreFailed, and on_failure is called once, to end the
    process.

    Args:
        on_failure: called once with the exception of the store.
        observe: called for each written group, when it is durable.
        history: notes each group; None: there is none.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_failure: Callable[[BaseException], None],
        observe: Observe | None = None,
        history: History | None = None,
    ) -> None:
        self._store = store
        self._history = history
        self._on_failure = on_failure
        self._observe = observe
        self._hooks: list[Callable[[WriteBatch], None]] = []
        self._deferred = False
        # Whether rows and callbacks are added now for which a caller waits; see unhurried().
        self.hurries = True
        # When the write of the present group began, on the event loop's clock.
        self._group_began: float | None = None
        self._unhurried_timer: asyncio.TimerHandle | None = None
        # Size of the open group, in bytes, at which the store is told of it next.
        self._ahead_bytes = AHEAD_BYTES_MIN
        self._sealed_position = 0
        # Everything up to here may leave, unless it waits for a sync of its own.
        self.written_position = 0
        self.batch = WriteBatch(self._before_operation)
        self._parked_open: list[Callable[[], None]] = []
        self._parked_sealed: list[Callable[[], None]] = []
        self._ready = ReadyCallbacks()
        # A dict, since a set's order would differ from run to run.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        # Taken while a group is written, and while a backup holds the store.
        self._writing = asyncio.Lock()

    def position(self) -> int:
        """The position that replies must wait for, given everything applied in memory so far.

        It is the open group if that holds or expects a row, else the newest sealed group, durable
        or not.
        """
        if self.batch.operations or self._deferred:
            return self._sealed_position + 1
        return self._sealed_position

    def seconds_under_way(self) -> float:
        """Return how long the present group is being written; 0 without one."""
        if self._group_began is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._group_began

    @property
    def durable_position(self) -> int:
        """Everything up to here outlives the machine."""
        return self.written_position

    def seconds_unsynced(self) -> float:
        """Return how long the oldest written group has waited for a sync; 0 without one."""
        return 0.0

    def when_written(self, position: int, *callbacks: Callable[[], None]) -> None:
        """Call back at once if position outlives the process, else when it does, in this order.

        Here that is when it is durable. A callback must not block or raise: an exception goes to
        the event loop's exception handler, as a bug, and the other callbacks still run. After a
        failure, callbacks of groups that are not written never run.
        """
        if position <= self.written_position:
            self._ready.call(*callbacks)
            return
        if not self._may_park(position):
            return
        if position <= self._sealed_position:
            self._parked_sealed += callbacks
        else:
            self._parked_open += callbacks
            if self.hurries:
                self._wake.set()
            if self._group_began is not None and self.batch.byte_count >= self._ahead_bytes:
                self._ahead_bytes = self.batch.byte_count + AHEAD_BYTES_MIN
                self._store.write_ahead(self.batch)

    def when_durable(self, position: int, *callbacks: Callable[[], None]) -> None:
        """Call back when position is durable; else like when_written()."""
        self.when_written(position, *callbacks)

    def unhurried(self) -> AbstractContextManager[None]:
        """Let rows and callbacks that are added in this block wait for another group.

        They become durable with the next group that something else begins, or 0.2 s later. Whatever
        is parked on them outside of such a block begins the group at once.
        """
        return _Unhurried(self)

    async def durable(self, position: int | None = None) -> None:
        """Wait until position is durable; without a position, everything applied so far.

        Raises:
            StoreFailed: the rows may or may not be durable; the process is ending.
        """
        if position is None:
            position = self.position()
        if position <= self.durable_position:
            return
        self._raise_failure()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[future] = None
        self.when_durable(position, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            self._waiters.pop(future, None)

    def before_seal(self, hook: Callable[[WriteBatch], None]) -> None:
        """Call hook just before each group is sealed, so that it can add deferred rows.

        This is for rows that change often and need a single write per group. A hook that raises
        fails the group, since memory would then hold changes that the store will never get.
        """
        self._hooks.append(hook)

    def mark_deferred(self) -> None:
        """Note that a hook will add a row: the open group is not empty. Repeating it is cheap."""
        if not self._deferred:
            self._check_open()
            self._deferred = True
            self._wake.set()

    async def start(self) -> None:
        """Begin to write groups."""
        if self._task is not None:
            raise BrokenInvariant("started twice")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="group-commit")

    async def hold(self) -> None:
        """Wait until no group is being written; from then on none is, until release().

        So nothing leaves the process meanwhile that depends on what the store does not hold yet.

        Raises:
            StoreFailed: the store has failed.
        """
        await self._writing.acquire()
        try:
            self._raise_failure()
        except StoreFailed:
            self._writing.release()
            raise

    def release(self) -> None:
        """Write groups again, after hold()."""
        self._writing.release()

    async def close(self) -> None:
        """Make all appended rows durable, also those that callbacks append; then refuse rows.

        The store stays open.

        Raises:
            StoreFailed: appended rows may be lost.
        """
        if self._task is not None and not self._closing:
            self._closing = True
            self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._raise_failure()
        if self.position() > self.durable_position:
            raise StoreFailed("never started: appended rows are not durable")

    def abandon(self) -> None:
        """Stop writing groups, and drop everything parked: another process may have the store."""
        if self._task is not None:
            self._task.cancel()
        self._fail(StoreFailed("the store was abandoned"))

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                # Everything that becomes ready in this turn of the event loop joins the group.
                await asyncio.sleep(0)
                self._wake.clear()
                if self.position() > self.written_position:
                    async with self._writing:
                        await self._commit()
                if self._closing:
                    if self.position() > self.written_position:
                        self._wake.set()
                    elif self._finish():
                        return
        except asyncio.CancelledError as error:
            self._fail(error)
            raise
        except Exception as error:
            self._fail(error)
            self._on_failure(error)

    async def _commit(self) -> None:
        batch = self._seal()
        started = self._group_began = asyncio.get_running_loop().time()
        if batch.operations:  # Hooks may have added nothing to an empty group.
            await self._write(batch)
        self._group_began = None
        seconds = asyncio.get_running_loop().time() - started
        self.written_position = self._sealed_position
        self._note_written()
        ready, self._parked_sealed = self._parked_sealed, []
        self._ready.run(ready)
        observe = self._observe
        if observe is not None and batch.operations:
            guard(lambda: observe(len(batch), batch.byte_count, seconds))

    def _note_written(self) -> None:
        if self._history is not None:
            self._history.note(Durable(self.written_position))

    async def _write(self, batch: WriteBatch) -> None:
        await self._store.write(batch)
        await self._store.sync()

    def _finish(self) -> bool:
        """See to it that everything that is written becomes durable, and return whether it is."""
        return True

    def _seal(self) -> WriteBatch:
        """Close the open group, with its deferred rows, and open the next group."""
        self._deferred = False
        self._stop_unhurried_timer()
        for hook in self._hooks:
            hook(self.batch)
        sealed, self.batch = self.batch, WriteBatch(self._before_operation)
        self._ahead_bytes = AHEAD_BYTES_MIN
        self._sealed_position += 1
        if self._history is not None:
            self._history.note(Sealed(self._sealed_position))
        self._parked_sealed, self._parked_open = self._parked_open, []
        # Hooks may have woken the writer for this group; rows that they defer again belong to the
        # next group.
        self._wake.clear()
        if self._deferred:
            self._wake.set()
        return sealed

    def _before_operation(self) -> bool:
        """Begin a group for an operation; return whether the group is sure to be written soon."""
        if self._unhurried_timer is not None and not self.hurries:
            # Nothing has failed, since the timer runs.
            return False
        self._check_open()
        if self.hurries:
            self._wake.set()
            return True
        if self._unhurried_timer is None:
            loop = asyncio.get_running_loop()
            self._unhurried_timer = loop.call_later(UNHURRIED_SECONDS, self._wake.set)
        return False

    def _stop_unhurried_timer(self) -> None:
        if self._unhurried_timer is not None:
            self._unhurried_timer.cancel()
            self._unhurried_timer = None

    def _check_open(self) -> None:
        self._raise_failure()
        if self._closing and self._task is not None and self._task.done():
            raise StoreFailed("the group commit is closed: nothing can be appended")

    def _may_park(self, position: int) -> bool:
        """Return whether a callback may be parked: after a failure, none ever runs.

        Raises:
            BrokenInvariant: nothing was appended there.
        """
        if position > self.position():
            raise BrokenInvariant(f"position {position} holds nothing yet")
        return self._failure is None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StoreFailed("a write or sync failed; the process must end") from self._failure

    def _fail(self, error: BaseException) -> None:
        # The first one says why.
        self._failure = self._failure or error
        self._stop_unhurried_timer()
        self._parked_open.clear()
        self._parked_sealed.clear()
        for future in self._waiters:
            if not future.done():
                future.set_exception(StoreFailed("a write or sync failed"))
